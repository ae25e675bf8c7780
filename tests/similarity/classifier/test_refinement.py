"""Means of classes from names and labeled texts: the labels decide how much names count."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import cohen_kappa_score

from skcalib import TextEncoder, ZeroShotClassifier
from skcalib.similarity.classifier.refinement import class_means

D = 24


def texts_of_classes(n, seed=0):
    """Texts of two classes that differ along the first axis, far less than texts do."""
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % 2
    vectors = rng.normal(size=(n, D)) / D**0.5
    vectors[:, 0] += np.where(codes, 0.4, -0.4)
    return vectors, codes


@pytest.mark.parametrize("is_misled", [False, True])
def test_labels_decide_how_much_names_count(is_misled):
    vectors, codes = texts_of_classes(400)
    names = np.eye(D)[[0, 0]] * [[-1], [1]] * (-1 if is_misled else 1)
    texts = {f"text {i}": vector for i, vector in enumerate(vectors)}
    known = texts | {"a": names[0], "b": names[1]}
    labels = [("a", "b")[codes[i]] if i < 6 else None for i in range(200)]

    def encoder(some):
        return np.stack([known[text] for text in some])

    train, test = [*texts][:200], [*texts][200:]
    named = ZeroShotClassifier(encoder, ["a", "b"]).fit(train, labels)
    nameless = ZeroShotClassifier(encoder).fit(train, labels)
    right = [("a", "b")[code] for code in codes[200:]]
    assert named.score(test, right) >= nameless.score(test, right) - 0.03
    assert named.score(test, right) > 0.9


def test_names_that_classify_better_than_few_labels_count_more():
    """Three texts of a class are about some topic, which is not what the classes are."""
    shares = []
    for seed in range(6):
        rng, codes = np.random.default_rng(seed), np.arange(400) % 4
        vectors = rng.normal(size=(400, D)) / D**0.5
        vectors += np.eye(D)[8 + rng.integers(3, size=400)]
        vectors[np.arange(400), codes] += 0.7
        known = {f"text {i}": vector for i, vector in enumerate(vectors)}
        known |= dict(zip("abcd", np.eye(D), strict=False))
        classes = [*"abcd"]
        labels = [classes[codes[i]] if i < 12 else None for i in range(200)]
        encoder = TextEncoder(lambda some, of=known: np.stack([of[text] for text in some]))
        model = ZeroShotClassifier(encoder, classes).fit([*known][:200], labels)
        shares.append(model.score([*known][200:400], [classes[c] for c in codes[200:]]))
    assert np.mean(shares) > 0.92  # 0.86 if they count as texts at most


@pytest.mark.parametrize(("topics", "fewest_right"), [(1.0, 0.6), (0.0, 0.95)])
def test_texts_without_labels_count_unless_they_follow_topics(topics, fewest_right):
    # If the means after the rounds always count, 30 % are right with topics; if they never
    # count, 83 % without.
    shares = []
    for seed in range(6):
        rng, codes = np.random.default_rng(seed), np.arange(400) % 4
        vectors = rng.normal(size=(400, D)) / D**0.5
        vectors += topics * np.eye(D)[8 + rng.integers(3, size=400)]
        vectors[np.arange(400), codes] += 0.3 if topics else 0.9
        names = np.eye(D)[:4] + (0 if topics else 0.45) * rng.normal(size=(4, D))
        known = {f"text {i}": vector for i, vector in enumerate(vectors)}
        known |= dict(zip("abcd", names / np.linalg.norm(names, axis=1)[:, None], strict=True))
        encoder = TextEncoder(lambda some, of=known: np.stack([of[text] for text in some]))
        model = ZeroShotClassifier(encoder, [*"abcd"]).fit([*known][:200])
        shares.append(model.score([*known][200:400], ["abcd"[c] for c in codes[200:]]))
    assert np.mean(shares) > fewest_right


def nearest(texts, means):
    return (texts @ means.T - (means**2).sum(axis=1) / 2).argmax(axis=1)


def weight_of_names(names, labeled, codes):
    """Classify each labeled text by the others, with and without the names."""
    k, right = len(names), np.zeros((2, len(codes)), bool)
    for i, text in enumerate(labeled):
        others = np.arange(len(codes)) != i
        for with_names in (0, 1):
            means = []
            for j in range(k):
                own = labeled[others & (codes == j)]
                means.append(np.vstack([own, names[[j]]] if with_names else [own]).mean(axis=0))
            right[with_names, i] = nearest(text[None], np.array(means))[0] == codes[i]
    won, lost = (right[1] & ~right[0]).sum(), (right[0] & ~right[1]).sum()
    skills = [
        ((1 + judged.sum()) / (1 + len(judged)) * k - 1) / (k - 1)
        for judged in (nearest(labeled, names) == codes, right[0])
    ]
    return max(max(skills[0], 0) / max(skills[1], 0.05) * (1 + won) / (1 + won + lost), 1e-3)


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("names_lie", [False, True, None])
def test_class_means_are_the_rule(names_lie, share):
    """Three rounds, ten texts for an example, and names that count by what they are worth."""
    for seed in range(12):
        rng, k = np.random.default_rng(seed), 3
        kind = rng.integers(k, size=120)
        texts = rng.normal(size=(120, 12)) / 12**0.5 + 0.8 * np.eye(12)[kind]
        rows = np.sort(np.concatenate([np.flatnonzero(kind == j)[:4] for j in range(k)]))
        codes = kind[rows]
        names = None if names_lie is None else np.eye(12)[[1, 2, 0] if names_lie else [0, 1, 2]]
        free, examples, weights, of = (
            np.delete(texts, rows, axis=0),
            texts[rows],
            [10] * 12,
            codes,
        )
        if names is not None:
            names = names + 0.5 * rng.normal(size=names.shape)
            weight = 10 * weight_of_names(names, examples, codes)
            examples, weights = np.vstack([names, examples]), [weight] * k + weights
            of = np.r_[:k, codes]
        totals = np.bincount(of, weights)
        sums = np.array([np.asarray(weights)[of == j] @ examples[of == j] for j in range(k)])
        first = means = sums / totals[:, None]
        best = (free @ first.T - (first**2).sum(axis=1) / 2).max(axis=1)
        free = free[best >= np.quantile(best, 1 - share)]
        before = found = nearest(free, first)
        for _ in range(3):
            added = [free[found == j].sum(axis=0) for j in range(k)]
            means = (sums + added) / (totals + np.bincount(found, minlength=k))[:, None]
            found = nearest(free, means)
        kept = max(cohen_kappa_score(before, found), 0.0)
        trust = kept**3 / (kept**3 + (1 - kept) ** 3) * len(free) / (len(free) + 100 * k)
        expected = (1 - trust) * first + trust * means
        assert_allclose(class_means(texts, names, rows, codes, share), expected, atol=1e-9)
