"""Means of classes from names and labeled texts: the labels decide how much names count."""

import numpy as np
import pytest

from skcalib import TextEncoder, ZeroShotClassifier

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
