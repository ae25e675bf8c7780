"""
Which words make two texts similar?
===================================

With mean pooling, and linear steps behind it, a cosine is exactly a sum over pairs of words.
:class:`~skcalib.inspection.TokenSimilarityDisplay` shows what each pair contributes, before and
after a calibration.
"""

# %%
# Two questions of bank customers ask for different things in nearly the same words. The
# whitening is fitted on questions, without labels.

import matplotlib.pyplot as plt
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, Whitening
from skcalib.datasets import load_questions, minilm_path
from skcalib.inspection import TokenSimilarityDisplay

encoder = BertEncoder(minilm_path(), layers=3)
calibrated = make_pipeline(encoder, Whitening(power="auto")).fit(load_questions().data)
pair = "How do I cancel my card?", "How do I cancel my transfer?"

# %%
# Beside each word is its share of the cosine. In raw vectors the special token [SEP] and the
# question mark contribute nearly as much as the word "cancel", because all questions have them.
# The calibration subtracts most of what all questions have in common. After it, "how do I
# cancel" makes most of the cosine, and "card", the word in which the texts differ,
# contributes a little less than nothing.

figure, axes = plt.subplots(1, 2, figsize=(11, 5.6), layout="constrained")
for ax, (name, pipeline) in zip(
    axes, {"raw": encoder, "calibrated": calibrated}.items(), strict=True
):
    display = TokenSimilarityDisplay.from_texts(pipeline, *pair, name=name, ax=ax)
    values = zip(display.words_a, display.margins[0], strict=True)
    shown = sorted(values, key=lambda item: -item[1])
    print(f"{name:11}", ", ".join(f"{word} {value:+.2f}" for word, value in shown))
figure.savefig("explained_cosine.png", dpi=150)
