"""The command of the command line."""
