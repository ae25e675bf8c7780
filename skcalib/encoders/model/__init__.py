"""A model of transformers: its files, its forward pass, batches, windows and pooling."""
