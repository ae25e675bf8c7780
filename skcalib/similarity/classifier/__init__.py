"""Classes from names and a few labels."""
