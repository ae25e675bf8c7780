"""One of the stored answers to a question, or none."""
