"""Two lists of records, each with at most one partner in the other."""
