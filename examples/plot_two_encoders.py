"""
Put a second encoder next to the first
=======================================

Two encoders see different things in a text. If both vectors have unit length, the cosine of the
two put side by side is a weighted mean of both cosines. A
:class:`~sklearn.pipeline.FeatureUnion` does that. The weight decides whether the second one
helps, and this script measures it: a weak encoder adds nothing to a good one.

The texts are sentences of scipy's documentation, and belong together if they are about the same
part of scipy (:func:`~skcalib.datasets.load_docstrings`).
"""

# %%
# The second encoder counts words (TF-IDF, reduced by a truncated SVD). Every machine has it.
# Put another model in its place, such as ``BertEncoder("intfloat/multilingual-e5-small",
# prompt="query: ")``. Each encoder has its own whitening and ends with unit length.

import matplotlib.pyplot as plt
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import Normalizer

from skcalib import BertEncoder, Whitening
from skcalib.datasets import load_docstrings, minilm_path
from skcalib.evaluation import evaluate_labeled

texts, parts = load_docstrings(return_X_y=True)
words = make_pipeline(TfidfVectorizer(sublinear_tf=True), TruncatedSVD(128, random_state=0))


def side_by_side(weight, *calibrators):
    """MiniLM and words; the second counts by its weight."""
    blocks = [
        ("MiniLM", make_pipeline(BertEncoder(minilm_path()), *calibrators[:1], Normalizer())),
        ("words", make_pipeline(words, *calibrators[1:], Normalizer())),
    ]
    return FeatureUnion(blocks, transformer_weights={"words": weight})


# %%
# Fitted on one half of the sentences, without labels, and scored on the other.

weights = [0, 0.25, 0.5, 0.75, 1]
rows = {f"raw, {weight}": side_by_side(weight) for weight in weights}
for weight in weights:
    whitenings = Whitening(power="auto"), Whitening(power="auto")
    rows[f"calibrated, {weight}"] = side_by_side(weight, *whitenings)
data = {"fit_on": texts[1::2], "scores": ["R-precision"]}
table = evaluate_labeled(rows, texts[::2], parts[::2], **data)
found = dict(zip(rows, table.scores[:, 0], strict=True))
for name, score in found.items():
    print(f"{name:18}{score:.1f}")

# %%
# At full weight the words pull the vectors down, because alone they are much worse than MiniLM.
# With a weight of a half, which is a quarter in the cosine, they change a few tenths: nothing
# that pays for a second encoder. The page on two encoders has figures of two models that are
# about equally good.

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for name in ("raw", "calibrated"):
    axes.plot(weights, [found[f"{name}, {weight}"] for weight in weights], "o-", label=name)
axes.set(
    xlabel="weight of the words next to MiniLM (0: MiniLM alone)",
    ylabel="R-precision",
    title="A weak second encoder brings nothing",
)
axes.legend()
figure.savefig("two_encoders.png", dpi=150)
print("Saved two_encoders.png")
