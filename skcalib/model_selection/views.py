"""Views of a text: parts that a good encoder matches with each other and with the whole."""

import re
import unicodedata
from collections.abc import Sequence
from hashlib import blake2b
from itertools import compress

import numpy as np
from scipy.sparse import csr_array, vstack
from scipy.sparse.csgraph import connected_components
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.metrics import pairwise_distances_chunked

from skcalib.inputs.texts import distinct
from skcalib.inputs.vectors import unit_rows

# Units that a text must have, so that half of it still means something.
FEWEST_UNITS = 6

# Share of the units that a copy with units dropped keeps.
KEPT = 0.3

# Largest cosine distance between the sets of units of near-duplicates: of five words each,
# three are the same.
NEAR = 0.4 + 1e-9

# Scripts that put no spaces between words: Thai to Tibetan, Burmese, Khmer, kana, Chinese
# characters. There a unit is a character, elsewhere it is a word between spaces.
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
UNIT = re.compile(rf"(?:[{UNSPACED}]|[^\s{UNSPACED}]+)\s*")


def units_of(text: str) -> list[str]:
    """Words of a text, or characters in scripts without spaces; joined they give the text."""
    units: list[str] = []
    for unit in UNIT.findall(text):
        if units and unicodedata.category(unit[0]).startswith("M"):
            units[-1] += unit  # a vowel sign or tone mark belongs to the letter before it
        else:
            units.append(unit)
    return units


class Views:
    """Views of a sample of texts, and how well vectors find one view from another.

    Each text has five: the whole, two copies that keep each unit with probability `KEPT`, its
    odd units and its even units. They depend only on the text and the seed, so that a store
    finds them again. ``texts`` are all views, each once: what to encode for `reciprocal_ranks`.
    """

    def __init__(self, texts: Sequence[str], *, n_texts: int, seed: int):
        units = {text: units_of(text) for text in distinct(texts)[0]}
        digests = {}
        for text, words in units.items():
            if len(words) >= FEWEST_UNITS:
                key = f"{seed}\0{text}".encode(errors="surrogatepass")
                digests[text] = blake2b(key).digest()
        # Sorted by digest, the sample depends neither on the order of texts nor on a split.
        self.sample = sorted(digests, key=digests.__getitem__)[:n_texts]
        views = [view for t in self.sample for view in _views(units[t], digests[t])]
        self.texts, index = distinct(views)
        self._rows = index.reshape(-1, 5).T

    def reciprocal_ranks(self, vectors: np.ndarray) -> np.ndarray:
        """Each text's reciprocal ranks by vectors of `texts`, of halves and thinned, (2, n)."""
        vectors, _ = unit_rows(np.asarray(vectors, dtype=np.float64))
        whole, one, other, odd, even = (vectors[rows] for rows in self._rows)
        thinned = _found(whole, one) + _found(whole, other)
        return np.stack([_found(odd, even), thinned / 2])


def combined(halves: float, thinned: float, weight: float = 0.5) -> float:
    """Combine mean reciprocal ranks of both kinds: the mean of their logits, as a rank again.

    Among more texts both logits shift by the same amount.
    """
    right = halves ** (1 - weight) * thinned**weight
    wrong = (1 - halves) ** (1 - weight) * (1 - thinned) ** weight
    return right / (right + wrong)


def near_duplicates(texts: Sequence[str]) -> np.ndarray:
    """Group of each text, from 0: texts are linked that have mostly the same units."""
    counted = CountVectorizer(
        analyzer=lambda text: [unit.strip().casefold() for unit in units_of(text)], binary=True
    ).fit_transform(texts)
    blocks = pairwise_distances_chunked(
        counted, reduce_func=lambda block, _: csr_array(block <= NEAR), metric="cosine"
    )
    return connected_components(vstack([*blocks]), directed=False)[1]


def _views(units: list[str], digest: bytes) -> list[str]:
    rng = np.random.default_rng(int.from_bytes(digest, "little"))
    thinned = []
    for _ in range(2):
        stays = rng.random(len(units)) < KEPT
        stays[rng.integers(len(units))] = True  # one at least
        thinned.append(list(compress(units, stays)))
    return ["".join(part).strip() for part in (units, *thinned, units[::2], units[1::2])]


def _found(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Reciprocal ranks of each row of b, found from its row of a and back: mean of the two."""
    similarity = a @ b.T
    return (_of_diagonal(similarity) + _of_diagonal(similarity.T)) / 2


def _of_diagonal(similarity: np.ndarray) -> np.ndarray:
    """Return the reciprocal rank of the diagonal entry in each row."""
    right = similarity.diagonal()[:, None]
    better = np.count_nonzero(similarity > right, axis=1)
    equal = np.count_nonzero(similarity == right, axis=1)  # itself among them
    return 1 / (better + (equal + 1) / 2)  # equal ones share their mean rank
