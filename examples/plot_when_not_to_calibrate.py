"""
When does exact whitening do harm?
==================================

Exact whitening, ``Whitening()`` without regularization, gives every direction the same weight.
This does harm in two cases: where fine-tuning made directions weak for a reason, and where
texts differ from those that the whitening was fitted on. The examples are the last layer of a
model that was fine-tuned for similarity, and single words after a fit on sentences.
``power="auto"`` prevents the first harm, and a distance detects the second case.

The script uses the bundled toy set (:func:`~skcalib.datasets.load_toy_sts`). Set the
environment variable ``SKCALIB_DATA`` to a folder of benchmarks to use STS-B instead.
"""

# %%
# A fine-tuned layer and one that is not
# --------------------------------------
# MiniLM was trained on a billion pairs so that the mean of its last layer has good cosines. Its
# embedding layer was not trained for this. ``noise`` is regularization: it is the variance of
# the noise that is assumed in every direction, as a share of the total variance. Directions
# that are mostly noise fade, and 0 means exact whitening. scikit-learn's validation curve shows
# Spearman's rho (the rank correlation of cosine and grade) on held-out folds for several values
# of ``noise``. The dashed lines are raw vectors.
#
# Exact whitening warns that these are few sentences. The script silences the warning, because
# it is about the harm that exact whitening does.

import os
import tempfile
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.covariance import LedoitWolf
from sklearn.model_selection import KFold, ValidationCurveDisplay, cross_val_score
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import Pipeline
from transformers import AutoTokenizer

from skcalib import BertEncoder, BiEncoder, Whitening
from skcalib.datasets import fetch_sts, load_toy_sts, minilm_path

if os.environ.get("SKCALIB_DATA"):
    name = "STS-B dev"
    pairs, grades = fetch_sts("stsb", "dev", return_X_y=True)
else:
    name = "the toy set"
    pairs, grades = load_toy_sts(return_X_y=True)
folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
memory = folder.name  # a folder of your own would be kept
folds = KFold(5, shuffle=True, random_state=0)
noises = [0.0, 0.001, 0.002, 0.004, 0.016]
warnings.filterwarnings("ignore", message="There are fewer than")


def model_of(layer, calibrator):
    """Model that scores pairs by the cosine of the means of one layer."""
    encoder = BertEncoder(minilm_path(), layers=layer, memory=memory)
    return BiEncoder(Pipeline([("encode", encoder), ("calibrate", calibrator)]))


figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
curves = {}
print(f"{'noise':28}{'raw':>8}" + "".join(f"{n:>8}" for n in (*noises, "auto")))
for label, layer in (("last layer, fine-tuned", -1), ("embedding layer", 0)):
    curves[label] = ValidationCurveDisplay.from_estimator(
        model_of(layer, Whitening()),
        pairs,
        grades,
        param_name="encoder__calibrate__noise",
        param_range=noises,
        cv=folds,
        score_type="test",
        score_name="Spearman's rho",
        std_display_style=None,
        ax=axes,
    )
    raw, auto = (
        cross_val_score(model_of(layer, calibrator), pairs, grades, cv=folds).mean()
        for calibrator in ("passthrough", Whitening(power="auto"))
    )
    axes.axhline(raw, color=curves[label].lines_[0].get_color(), linestyle="--")
    row = [raw, *curves[label].test_scores.mean(axis=1), auto]
    print(f"{label:28}" + "".join(f"{100 * score:8.1f}" for score in row))
axes.set(xlabel="noise", xscale="linear", title=f"Whitening on {name}")
axes.get_legend().remove()
lines = [display.lines_[0] for display in curves.values()]
figure.legend(lines, curves, loc="outside lower center", ncols=2)
figure.savefig("when_not_to_calibrate.png", dpi=150)

# %%
# The embedding layer gains with any regularization. The fine-tuned layer loses several points
# (scores are times 100) by exact whitening, because its weak directions were weak for a reason.
# With more regularization it comes closer to its raw score, or rises a point above it. "auto"
# chooses the value without grades; it is right for the fine-tuned layer, and raises the other.
#
# Single words
# ------------
# A word is a text too. Is the vector of "cello" near those of other instruments? The data are
# ten kinds of things with twelve words each. The score is the share of a word's five nearest
# neighbors, by cosine, that are of the same kind.

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


def same_kind(X):
    """Share of the five nearest neighbors that are of the same kind, in percent."""
    search = NearestNeighbors(n_neighbors=5, metric="cosine").fit(X)
    nearest = search.kneighbors(return_distance=False)  # without the word itself
    return 100 * np.mean(kinds[nearest] == kinds[:, None])


# %%
# One whitening is fitted on sentences from above. Another is fitted on other words: five
# thousand frequent words of the model's vocabulary, without the words of the test. A third of
# the sentences is kept for later.

sentences = np.random.default_rng(0).permutation(np.unique(pairs.astype(str)))
aside, sentences = np.split(sentences, [len(sentences) // 3])
vocabulary = AutoTokenizer.from_pretrained(minilm_path()).get_vocab()
words = sorted(vocabulary, key=vocabulary.get)  # BERT's rows are by decreasing frequency
words = [word for word in words if word.isalpha() and len(word) > 2]
words = [w for w in words[:5000] if w not in set(things)]
for label, layer in (("embedding layer", 0), ("last layer, fine-tuned", -1)):
    encoder = BertEncoder(minilm_path(), layers=layer, memory=memory).fit(things)
    vectors = encoder.transform(things)
    sources = {
        "sentences": encoder.transform(sentences),
        "words": encoder.transform(words),
    }
    print(f"\n{label}\n{'fitted on':12}{'power':>8}{'same kind, %':>14}")
    print(f"{'(raw)':12}{'':>8}{same_kind(vectors):14.0f}")
    for source, X in sources.items():
        for power in (1.0, "auto"):
            Z = Whitening(power=power).fit(X).transform(vectors)
            print(f"{source:12}{power:>8}{same_kind(Z):14.0f}")

# %%
# Exact whitening that was fitted on sentences ruins the neighborhoods of words. Sentences
# average over many words, so some directions vary little between sentences but a lot between
# words, and exact whitening amplifies them. With ``power="auto"`` about as many neighbors are
# of the same kind as with raw vectors, whatever it was fitted on. Still, **fit on the kind of
# text that you compare**.
#
# How to detect other texts
# -------------------------
# The Mahalanobis distance detects texts that are unlike those of the fit. It is their squared
# distance from the mean, in units of the spread. Texts of the right kind
# that the fit did not see determine the threshold, here the 95th percentile.

gaussian = LedoitWolf().fit(sources["sentences"])
new_sentences = gaussian.mahalanobis(encoder.transform(aside))
threshold = np.percentile(new_sentences, 95)
print(f"{'':16}{'median distance²':>18}{'beyond, %':>12}")
for label, distances in (
    ("new sentences", new_sentences),
    ("words", gaussian.mahalanobis(vectors)),
):
    beyond = 100 * np.mean(distances > threshold)
    print(f"{label:16}{np.median(distances):18.0f}{beyond:12.0f}")

# %%
# Words are two to four times as far away as sentences, and nearly all of them are beyond the
# threshold. If many of your texts are beyond it, fit on texts of their kind.
