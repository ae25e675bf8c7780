"""How rare a similarity is among pairs of texts."""
