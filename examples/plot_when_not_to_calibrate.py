"""
When not to calibrate
=====================

Calibration corrects vectors whose directions mean unequally much. Where that is not what is
wrong, it takes information away. Two cases: the last layer of a model that was tuned for
similarity, and vectors that differ from those that the calibrator was fitted on, here single
words. In both, plain whitening does harm, and shrinkage near 1 does none.

The script runs on the sentence pairs that ship with the package, or, if the environment
variable ``SKCALIB_DATA`` names a folder of benchmarks, on STS-B.
"""

# %%
# A layer that was tuned, and one that was not
# --------------------------------------------
# MiniLM was trained on a billion pairs to make the mean of its last layer good at cosine
# similarity. Its embedding layer was not. Spearman's rho against the shrinkage of a whitening,
# on held-out folds, is a validation curve of scikit-learn; the dashed lines are raw vectors.

import os
import tempfile

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    ValidationCurveDisplay,
    cross_val_score,
)
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import Pipeline

from skcalib import BertEncoder, BiEncoder, Whitening
from skcalib.datasets import fetch_sts, load_toy_sts, minilm_path
from skcalib.inspection import word_embeddings
from skcalib.metrics import mean_cosine

if os.environ.get("SKCALIB_DATA"):
    name = "STS-B dev"
    pairs, grades = fetch_sts("stsb", "dev", return_X_y=True)
else:
    name = "the toy set"
    pairs, grades = load_toy_sts(return_X_y=True)
folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
memory = folder.name  # name a folder of your own, and it is kept
folds = KFold(5, shuffle=True, random_state=0)
shrinkages = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 1.0]


def model_of(layer):
    """Pairs to cosine, by the mean of one hidden layer, whitened."""
    encoder = BertEncoder(minilm_path(), layers=layer, memory=memory)
    return BiEncoder(Pipeline([("encode", encoder), ("calibrate", Whitening())]))


figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
curves = {}
print(f"{'':18}{'raw':>8}" + "".join(f"{s:>8}" for s in shrinkages))
for label, layer in (("embedding layer", 0), ("last layer, tuned", -1)):
    model = model_of(layer)
    curves[label] = ValidationCurveDisplay.from_estimator(
        model,
        pairs,
        grades,
        param_name="encoder__calibrate__shrinkage",
        param_range=shrinkages,
        cv=folds,
        score_type="test",
        score_name="Spearman's rho",
        std_display_style=None,
        ax=axes,
    )
    model.set_params(encoder__calibrate="passthrough")
    raw = cross_val_score(model, pairs, grades, cv=folds).mean()
    axes.axhline(raw, color=curves[label].lines_[0].get_color(), linestyle="--")
    row = [raw, *curves[label].test_scores.mean(axis=1)]
    print(f"{label:18}" + "".join(f"{100 * score:8.1f}" for score in row))
axes.set(xlabel="shrinkage", xscale="linear", title=f"Whitening on {name}")
axes.legend([display.lines_[0] for display in curves.values()], curves)
figure.savefig("when_not_to_calibrate.png", dpi=150)

# %%
# The embedding layer gains by shrunk whitening. The tuned layer loses several points by the
# plain one: its weak directions were weak for a reason. With shrinkage near 1, which changes
# little more than the mean, it is back where it was, or half a point above.
#
# A grid search that has ``"passthrough"`` among its candidates takes care of both cases.

candidates = [
    {"encoder__calibrate": ["passthrough"]},
    {
        "encoder__calibrate": [Whitening()],
        "encoder__calibrate__n_components": [128, None],
        "encoder__calibrate__shrinkage": [0.0, 0.5, 0.97],
    },
]
for label, layer in (("embedding layer", 0), ("last layer, tuned", -1)):
    search = GridSearchCV(model_of(layer), candidates, cv=folds).fit(pairs, grades)
    chosen = search.best_estimator_.get_params()["encoder__calibrate"]
    print(f"{label:18}{100 * search.best_score_:6.1f}  {chosen}")

# %%
# Single words
# ------------
# A word is a text too. Is the vector of "cello" near to those of other instruments? Ten kinds
# of things, twelve words each; the score is the share of the five nearest neighbours, by
# cosine, that are of the same kind.

KINDS = """
dog cat horse cow sheep goat wolf fox bear lion tiger rabbit
apple pear plum cherry peach lemon grape melon fig banana mango strawberry
car bus truck train boat ship plane bicycle tram motorcycle helicopter van
table chair bed sofa desk shelf cupboard stool bench wardrobe couch drawer
shirt coat dress skirt hat glove sock shoe jacket scarf trousers sweater
doctor teacher lawyer baker farmer nurse carpenter engineer plumber tailor judge butcher
hammer saw drill wrench axe shovel rake pliers chisel screwdriver spade file
piano violin flute guitar trumpet drum harp cello clarinet organ trombone oboe
france germany spain italy china japan brazil canada egypt india mexico poland
arm leg head foot knee elbow shoulder nose ear neck finger thumb
"""
things = KINDS.split()
kinds = np.repeat(np.arange(10), 12)
encoder = BertEncoder(minilm_path(), layers=0, memory=memory).fit(things)
vectors = encoder.transform(things)


def same_kind(X):
    """Share of the five nearest neighbours that are of one's own kind, in per cent."""
    search = NearestNeighbors(n_neighbors=5, metric="cosine").fit(X)
    nearest = search.kneighbors(return_distance=False)  # of each but itself
    return 100 * np.mean(kinds[nearest] == kinds[:, None])


# %%
# Fitted on what? Once on the sentences from above, and once on other words: five thousand
# frequent ones of the model's vocabulary, without the words of the test.

sentences = np.unique(pairs.astype(str))
words = [w for w in word_embeddings(minilm_path())[2] if w.isalpha() and len(w) > 2]
words = [w for w in words[:5000] if w not in set(things)]
sources = {"sentences": encoder.transform(sentences), "words": encoder.transform(words)}

print(f"{'fitted on':12}{'shrinkage':>10}{'same kind, %':>14}{'mean cosine':>13}")
print(f"{'(raw)':12}{'':>10}{same_kind(vectors):14.0f}{mean_cosine(vectors):13.2f}")
for source, X in sources.items():
    for shrinkage in (0.0, 0.5, 0.97):
        Z = Whitening(shrinkage=shrinkage).fit(X).transform(vectors)
        scores = f"{same_kind(Z):14.0f}{mean_cosine(Z):13.2f}"
        print(f"{source:12}{shrinkage:>10}{scores}")

# %%
# Fitted on sentences, plain whitening ruins the neighbourhood of words. The mean of sentences
# is not that of words, so it does not centre them: their cosines stay high whatever they mean.
# And what varies little between sentences, which average over many words, is amplified, though
# between words it varies a lot.
#
# Fitted on words it centres them, and with shrinkage a few more neighbours are of the right
# kind. The gain is small, for raw vectors of words are not bad. **Fit on the kind of text that
# you compare, and measure before you calibrate.**
