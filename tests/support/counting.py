"""A model of texts that remembers what it was asked."""


class Counting:
    """Stands for a client of a model, which no deep copy can be made of."""

    def __init__(self, vectors):
        self.vectors, self.asked = vectors, []

    def encode(self, texts):
        self.asked += texts
        return self.vectors(texts)

    __call__ = encode

    def __deepcopy__(self, memo):
        raise TypeError("no copy can be made of a client")
