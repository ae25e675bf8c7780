"""Texts, vectors, labels and files of them, from containers of all kinds."""
