"""Translation of vectors from the space of one model into that of another."""
