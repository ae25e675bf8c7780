"""
One index for texts from two sources
====================================

In a multilingual model the nearest neighbors of a text tend to be in the same language. In a
mixed collection they tend to come from the same source. :class:`~skcalib.GroupErasure` removes
the directions in which the means of such groups differ.

The bundled model knows English only. So the groups of this script are two sources, search
queries and letters. Each sentence occurs in both.
"""

# %%
# Each sentence occurs twice: as it is, and inside a letter. The first half of the sentences
# fits the calibration, and the second half is searched.

import matplotlib.pyplot as plt
import numpy as np
from sklearn import config_context
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, BiEncoder, GroupErasure, Whitening
from skcalib.datasets import load_toy_sts, minilm_path
from skcalib.export import to_torch

sentences = np.random.default_rng(0).permutation(load_toy_sts().data[:, 0])


def letter(sentence):
    """Wrap a sentence into a letter."""
    return f"Dear team, I hope this finds you well. {sentence} Thank you and regards"


letters = [letter(sentence) for sentence in sentences]
texts, sources = [*sentences, *letters], np.repeat(["search", "letter"], len(sentences))
X = BertEncoder(minilm_path()).fit_transform(texts)
known = np.tile(np.arange(len(sentences)) < len(sentences) // 2, 2)

# %%
# ``fit`` needs the source of each text, ``transform`` does not. The whitening follows in the
# same pipeline.

calibrators = {
    "raw": make_pipeline("passthrough"),
    "calibrated": make_pipeline(Whitening(power="auto")),
    "erased, calibrated": make_pipeline(GroupErasure(), Whitening(power="auto")),
}
groups = {"grouperasure__groups": sources[known]}
new_sources, meaning = sources[~known], np.tile(np.arange(np.sum(~known) // 2), 2)


def scores(Z):
    """Share of texts whose nearest is their twin, and of neighbors from the same source."""
    search = NearestNeighbors(n_neighbors=5, metric="cosine").fit(Z)
    nearest = search.kneighbors(return_distance=False)
    twin = meaning[nearest[:, 0]] == meaning
    return 100 * np.mean(twin), 100 * np.mean(new_sources[nearest] == new_sources[:, None])


figure, axes = plt.subplots(1, 3, figsize=(9, 3.4), layout="constrained")
print(f"{'':20}{'twin first, %':>15}{'own source among 5, %':>23}")
for ax, (name, pipeline) in zip(axes, calibrators.items(), strict=True):
    pipeline.fit(X[known], **(groups if "erased" in name else {}))
    Z = pipeline.transform(X[~known])
    twin, own = scores(Z)
    print(f"{name:20}{twin:15.0f}{own:23.0f}")
    plane = PCA(2).fit_transform(Z / np.linalg.norm(Z, axis=1, keepdims=True))
    for source in ("search", "letter"):
        ax.scatter(*plane[new_sources == source].T, s=8, alpha=0.6, label=source)
    ax.set(title=f"{name}\n{twin:.0f} % find their twin", xticks=[], yticks=[])
axes[0].legend()
figure.savefig("groups.png", dpi=150)

# %%
# The picture shows the first two principal components. The raw vectors form two clouds, one for
# each source. After the erasure both clouds coincide, and every text finds its twin. With a
# multilingual model, a search in four languages at once gains twelve points from the erasure
# (`table <../languages.html>`_).
#
# As one linear map
# -----------------
# Both steps combine into one linear map, for a search with faiss or for another runtime.

erasure, whitening = calibrators["erased, calibrated"].named_steps.values()
module = to_torch(erasure, whitening)
print(module, f"erases rank {len(erasure.components_)} of {X.shape[1]}")

# %%
# In a search by grades
# ---------------------
# In pairs whose sentences come from either source at random, the source moves the cosine, and
# the grade does not. `BiEncoder` passes the groups on to the erasure. A search passes those of
# each fold on, once scikit-learn's metadata routing is enabled and the model requests them.

pairs, grades = load_toy_sts(return_X_y=True)
origin = np.random.default_rng(0).choice(["search", "letter"], size=pairs.shape)
mixed = np.where(origin == "letter", np.vectorize(letter, otypes=[object])(pairs), pairs)
encoder, folds = BertEncoder(minilm_path()), KFold(3, shuffle=True, random_state=0)
grid = {"encoder__whitening__n_components": [32, 128, None]}

raw = cross_val_score(BiEncoder(encoder), mixed, grades, cv=folds).mean()
model = BiEncoder(make_pipeline(encoder, Whitening(power="auto")))
whitened = GridSearchCV(model, grid, cv=folds).fit(mixed, grades).best_score_
model = BiEncoder(make_pipeline(encoder, GroupErasure(), Whitening(power="auto")))
with config_context(enable_metadata_routing=True):
    search = GridSearchCV(model.set_fit_request(groups=True), grid, cv=folds)
    search.fit(mixed, grades, groups=origin)
print(f"raw {raw:.3f}, whitened {whitened:.3f}, erased and whitened {search.best_score_:.3f}")
print(search.best_params_)

# %%
# Spearman's rho of the best candidate rises from raw to whitened vectors, and once more by the
# erasure. ``groups`` has a row for each pair and a column for each of its sentences. Where both
# are of one group, one entry for each pair will do.
