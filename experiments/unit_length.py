"""A logistic regression on unit vectors and on vectors of any length ("free").

Accuracy on Banking77's test questions from ten training questions of each intent, after a
whitening of 4,000 training questions.
"""

import numpy as np
from contenders import some
from data import FITTED, labelled
from measures import unit
from sklearn.linear_model import LogisticRegression


def rows(encode, options):
    train, of_train = labelled("Banking77", "train", 10**6)
    few = np.concatenate([np.flatnonzero(of_train == c)[:10] for c in np.unique(of_train)])
    texts, labels = labelled("Banking77", "test", options.most)
    X, T = encode(train), encode(texts)
    for name, step in some(("raw", "whitened")).items():
        step.fit(X[:FITTED])
        fit, score = step.transform(X[few]), step.transform(T)
        for length, scaled in (("unit", unit), ("free", np.asarray)):
            row = {"vectors": f"{name}, {length}"}
            for C in (1, 10, 100):
                model = LogisticRegression(C=C, max_iter=1000)
                model.fit(scaled(fit), of_train[few])
                row[f"C={C}"] = f"{100 * model.score(scaled(score), labels):.1f}"
            yield row
