"""
A grid search that ends in a classifier
=======================================

The vectors of a BERT are features for any classifier of scikit-learn. Which layers, which
pooling, how many dimensions, and does a calibration help? One grid search answers all of this.
The answer depends on the number of labels: with many, the calibration gains nothing; with a
few, it gains several points, because it also learns from texts without labels.
"""

# %%
# The texts are sentences of scipy's documentation, and the classes its 13 parts
# (:func:`~skcalib.datasets.load_docstrings`). Four tenths of the texts are held out.

import tempfile

import joblib
import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer

from skcalib import BertEncoder, NeighborSmoothing, Whitening
from skcalib.datasets import load_docstrings

corpus = load_docstrings()
texts, parts = corpus.data[::2], corpus.target_names[corpus.target][::2]
split = train_test_split(texts, parts, test_size=0.4, stratify=parts, random_state=0)
texts, new_texts, parts, new_parts = split

# %%
# With ``memory``, each text passes through BERT once, for all layers and poolings, all
# candidates and all folds. After that a candidate takes a fraction of a second, so ``n_jobs``
# pays only where the classifier is slow; each worker process reads the same folder.

folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
encoder = BertEncoder("minilm", memory=folder.name)
model = Pipeline(
    [
        ("encode", encoder),
        ("calibrate", "passthrough"),
        ("scale", Normalizer()),
        ("classify", LogisticRegression(C=10, max_iter=1000)),
    ]
)
layers = {
    "encode__layers": [-1, "first_last"],
    "encode__pooling": ["mean", "cls"],
}
grid = [
    layers | {"calibrate": ["passthrough", Whitening(power=0)]},
    layers
    | {
        "calibrate": [Whitening(power="auto", n_groups=13)],
        "calibrate__n_components": [64, 128],
    },
]
search = GridSearchCV(model, grid, cv=3).fit(texts, parts)


def accuracy(fitted):
    """Accuracy on the held-out texts, in percent."""
    return 100 * fitted.score(new_texts, new_parts)


raw = model.fit(texts, parts)
print(f"{len(texts)} labels: raw {accuracy(raw):.1f}, the winner {accuracy(search):.1f}")
print(search.best_params_)

# %%
# With all labels the search gains nothing over raw vectors: the classifier learns from the
# labels which directions matter. Now only five texts of each part have a label. A calibration
# inside a search would be fitted on these few. Fitted on all texts before, and frozen, it
# learns from those without labels, too. A search over so few labels would choose by chance, so
# the table shows each calibration.

rng = np.random.default_rng(0)
each = [np.flatnonzero(parts == part) for part in np.unique(parts)]
draws = [
    np.concatenate([rng.choice(rows, 5, replace=False) for rows in each]) for _ in range(5)
]
steps = {
    "raw": [],
    "mean subtracted": [Whitening(power=0)],
    "13 groups": [Whitening(power="auto", n_groups=13)],
    "13 groups, smoothed": [Whitening(power="auto", n_groups=13), NeighborSmoothing()],
}
frozen = {n: FrozenEstimator(make_pipeline(encoder, *s).fit(texts)) for n, s in steps.items()}
small = Pipeline([("features", None), ("scale", Normalizer()), ("classify", model[-1])])
few = draws[0]
for name, features in frozen.items():
    small.set_params(features=features)
    scores = [accuracy(small.fit(texts[few], parts[few])) for few in draws]
    print(f"{len(few)} labels, {name}: {np.mean(scores):.1f} (mean of {len(scores)} draws)")

# %%
# joblib pickles the winner for a server. The file holds the calibration and the classifier; a
# server loads BERT from the same name or folder of a model. The memory stays here.

winner = search.best_estimator_
path = f"{folder.name}/classifier.joblib"
joblib.dump(winner, path)
loaded = joblib.load(path)
print(loaded.predict(["Solve a linear system.", "Draw random numbers."]))
