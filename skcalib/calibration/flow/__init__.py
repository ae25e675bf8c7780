"""The normalizing flow."""
