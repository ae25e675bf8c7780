"""Promised rates, counts and p-values beside those that simulated data keep.

    python tests/long/rates.py
    python tests/long/rates.py shift rejection_rate --draws 400

prints a table with a row for each number and number of texts, and a column for each kind of
vectors: the rate of a fit among many new texts, divided by the promise, as the mean over fits
with two standard errors, and the share of the fits that exceed the promise. "refused" is an
error in every draw, "warned" a warning, that there are too few texts; "3 refused" are errors in
some draws. The exit code is 1 if a number is above 1.2 times its promise by more than three
standard errors, or if one that is promised for the fit at hand is exceeded by more than a tenth
of the fits, and the user was not warned; or if errors come by chance. Without names it takes an
hour.

Kinds of vectors: "normal"; "heavy" (Student's t with two degrees of freedom); "groups" (twenty
of very different sizes); "skewed" (positive, of very different sizes); "copied" (each text four
times, equal vectors); "near" (each text four times, nearly equal vectors), for the numbers that
count near-copies once.
"""

import argparse
import inspect
import sys
import warnings

import numpy as np

from skcalib import (
    NearestAnswer,
    SearchEncoder,
    SimilarityScale,
    TextEncoder,
    Whitening,
    ZeroShotClassifier,
    clear_caches,
)
from skcalib.cli.compare import by_labels, compared, recommended, steps_for
from skcalib.inputs.texts import distinct
from skcalib.monitoring import shift
from skcalib.statistics.bootstrap import interval, leads

D = 16
SIZES = 20, 50, 200
KINDS = "normal", "heavy", "groups", "skewed", "copied", "near"
COPIES = 4
ACCEPTED = 1.2


class Source:
    """Vectors of one kind, and texts that stand for them."""

    def __init__(self, kind, seed):
        self.kind, self.rng = kind, np.random.default_rng(seed)
        self.centers = 3 * self.rng.normal(size=(20, D))
        self.vectors = np.empty((0, D))

    def new(self, n):
        """Vectors of n different texts, around a mean that is not zero."""
        X = self.rng.normal(size=(n, D))
        if self.kind == "heavy":
            X /= np.sqrt(self.rng.chisquare(2, size=(n, 1)) / 2)
        if self.kind == "skewed":
            X = np.exp(X)
        if self.kind == "groups":
            sizes = 1 / np.arange(1, 21)
            X = 0.5 * X + self.centers[self.rng.choice(20, n, p=sizes / sizes.sum())]
        return X + 0.5

    def fitted(self, n):
        """Vectors of n texts, or of a few with copies."""
        if self.kind not in ("copied", "near"):
            return self.new(n)
        X = np.repeat(self.new(n // COPIES), COPIES, axis=0)
        return X + 0.05 * self.rng.normal(size=X.shape) * (self.kind == "near")

    def texts(self, vectors):
        """Texts of vectors, equal ones for equal vectors."""
        first = len(self.vectors)
        self.vectors = np.vstack([self.vectors, vectors])
        _, rows = np.unique(vectors, axis=0, return_index=True)
        place = {vectors[row].tobytes(): row for row in rows}
        return [f"t{first + place[row.tobytes()]}" for row in vectors]

    @property
    def encoder(self):
        return TextEncoder(lambda texts: self.vectors[[int(text[1:]) for text in texts]])


def cosines(A, B):
    A, B = (X / np.linalg.norm(X, axis=1, keepdims=True) for X in (A, B))
    return A @ B.T


# A function for each number: it returns the promise and what was kept in one draw.


def threshold_per_pair(source, n, calibration=None):
    rate = 0.2 if n == 20 else 0.05
    scale = SimilarityScale(calibration).fit(source.fitted(n))
    A, B = source.new(200), source.new(200)
    if calibration is not None:
        A, B = (scale.encoder_.transform(X) for X in (A, B))
    return rate, np.mean(cosines(A, B) >= scale.threshold(rate))


def threshold_per_pair_whitened(source, n):
    return threshold_per_pair(source, n, Whitening(shrinkage="auto"))


def threshold_per_query(source, n):
    rate, documents, queries = 0.1, source.new(100), source.fitted(n)
    scale = SimilarityScale().fit(documents, unanswerable=queries)
    best = cosines(source.new(2000), documents).max(axis=1)
    return rate, np.mean(best >= scale.threshold(rate, per="query"))


def threshold_per_query_of_documents(source, n):
    rate, documents = 0.1, source.fitted(n)
    threshold = SimilarityScale().fit(documents).threshold(rate, per="query")
    return rate, np.mean(cosines(source.new(2000), documents).max(axis=1) >= threshold)


def unanswerable(source, n):
    stored, unknown, new = (
        source.texts(X) for X in (source.new(50), source.fitted(n), source.new(100))
    )
    model = NearestAnswer(
        SearchEncoder(source.encoder, lexical_weight=0), false_positive_rate=0.1
    )
    model.fit(stored, np.arange(50), unanswerable=unknown)
    return 0.1, np.mean([answer is not None for answer in model.predict(new)])


def stored_answers(source, n):
    """Each has as many questions as a Zipf distribution has it, or four that are near."""
    sizes = np.minimum(source.rng.zipf(2.0, size=n), 50) if source.kind == "groups" else 1
    questions = source.fitted(n)
    answers = np.arange(n) // (COPIES if source.kind in ("copied", "near") else 1)
    answers, questions = np.repeat(answers, sizes), np.repeat(questions, sizes, axis=0)
    questions = questions + 0.1 * source.rng.normal(size=questions.shape)
    new = source.texts(source.new(100))
    model = NearestAnswer(
        SearchEncoder(source.encoder, lexical_weight=0), false_positive_rate=0.1
    )
    model.fit(source.texts(questions), answers)
    return 0.1, np.mean([answer is not None for answer in model.predict(new)])


def rejection_rate(source, n):
    names = source.texts(source.centers[:4] if source.kind == "groups" else source.new(4))
    texts, new = source.texts(source.fitted(n)), source.texts(source.new(1000))
    model = ZeroShotClassifier(
        source.encoder,
        dict(enumerate([[name] for name in names])),
        rejection_rate=0.1,
        other=-1,
    )
    return 0.1, np.mean(model.fit(texts).predict(new) == -1)


def shift_p_value(source, n):
    """The new sample has copies, too."""
    return 0.05, shift(source.fitted(n), source.fitted(40)).p_value <= 0.05


def evidence(source, n, n_columns):
    """Values of texts whose true mean is 0, their groups, and a seed.

    Here "groups" are n groups of very different sizes. Fewer than 20 are no evidence.
    """
    groups = np.arange(n) // (COPIES if source.kind in ("copied", "near") else 1)
    if source.kind == "groups":
        groups = np.repeat(np.arange(n), np.minimum(source.rng.zipf(2.0, size=n), 50))
    if groups[-1] < 19:
        raise ValueError("too few")
    values = source.rng.normal(size=(n_columns, groups[-1] + 1))
    if source.kind == "heavy":
        values = source.rng.standard_t(3, size=values.shape)
    if source.kind == "skewed":  # rare large losses
        values = 0.3 * (1 - source.rng.exponential(size=values.shape))
    values = values[:, groups]
    if source.kind in ("near", "groups"):
        values += source.rng.normal(size=values.shape)
    return values, groups, int(source.rng.integers(2**31))


def interval_of_a_difference(source, n):
    """It misses the true difference in 5 %, of n groups, or n / 4."""
    values, groups, seed = evidence(source, n, 20)
    low, high = interval(values, groups, seed)
    return 0.05, np.mean((low > 0) | (high < 0))


def lead_of_the_best_of_many(source, n):
    """Of ten equal ones, the best is called better than the first in 2.5 % at most."""
    values, groups, seed = evidence(source, n, 10)
    return 0.025, any(d.is_gain for d in leads(values, groups, seed))


def lead_over_one_that_is_constant(source, n):
    """The same of 28, where the leads are as skewed as the values, and independent."""
    values, groups, seed = evidence(source, n, 28)
    values[0] = 0
    return 0.025, any(d.is_gain for d in leads(values, groups, seed))


def lead_where_few_change(source, n):
    """The same where a candidate changes one text in ten."""
    values, groups, seed = evidence(source, n, 10)
    changed = source.rng.random((len(values), groups[-1] + 1)) < 0.1
    return 0.025, any(d.is_gain for d in leads(values * changed[:, groups], groups, seed))


def recommendation_by_chance(source, n):
    """Of `skcalib compare`, for labels that say nothing; copies have one label."""
    X = source.fitted(n)
    alike = np.arange(len(X)) // (COPIES if source.kind in ("copied", "near") else 1)
    codes = distinct(source.rng.integers(4, size=len(X))[alike].tolist())[1]
    order = source.rng.permutation(len(X))
    folds, kept = by_labels(X[order], codes[order])
    rows = compared(folds, steps_for(folds, 4, by_labels=True), alike[order][kept])
    return 0.05, recommended(rows) is not rows[0]


NUMBERS = {
    name: value
    for name, value in [*globals().items()]
    if inspect.isfunction(value) and [*inspect.signature(value).parameters][:1] == ["source"]
}


COUNT_NEAR_COPIES = (
    rejection_rate,
    shift_p_value,
    interval_of_a_difference,
    lead_of_the_best_of_many,
    lead_over_one_that_is_constant,
    lead_where_few_change,
    recommendation_by_chance,
)

# Promised for the fit at hand from 100 texts on, with a confidence of 0.9.
FOR_THE_FIT = threshold_per_query, threshold_per_query_of_documents, rejection_rate


def cell(number, kind, n, draws):
    """Return the text of a cell of the table, and whether the promise is broken."""
    if kind == "near" and number not in COUNT_NEAR_COPIES:
        return "-", False
    kept, promise, warned, refused = [], 1.0, False, 0
    for seed in range(draws):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                promise, found = number(Source(kind, [seed, n]), n)
            except ValueError:
                if not kept and seed == 9:
                    return "refused", False
                refused += 1
                continue
            finally:
                clear_caches()
        warned |= any(issubclass(warning.category, UserWarning) for warning in caught)
        kept.append(found / promise)
    mean, error = np.mean(kept), 2 * np.std(kept) / np.sqrt(len(kept))
    over = np.mean(np.array(kept) > 1)
    n_distinct = n // COPIES if kind in ("copied", "near") else n
    broken = bool(mean - 1.5 * error > ACCEPTED)
    if number in FOR_THE_FIT and n_distinct >= 100:
        broken |= bool(over > 0.1 + 3 * np.sqrt(0.1 * 0.9 / len(kept)))
    text = f"{mean:.2f} ± {error:.2f}, {over:.2f} over" + " warned" * warned
    broken = (broken and not warned) or bool(refused)
    return text + f", {refused} refused" * bool(refused) + " !" * broken, broken


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("numbers", nargs="*", choices=[[], *NUMBERS], metavar="number")
    parser.add_argument("--draws", type=int, default=200)
    options = parser.parse_args()
    print(" | ".join(["number", "texts", *KINDS]))
    any_broken = False
    for name in options.numbers or NUMBERS:
        for n in SIZES:
            cells = [cell(NUMBERS[name], kind, n, options.draws) for kind in KINDS]
            any_broken |= any(broken for _, broken in cells)
            print(" | ".join([name, str(n), *(text for text, _ in cells)]), flush=True)
    return int(any_broken)


if __name__ == "__main__":
    sys.exit(main())
