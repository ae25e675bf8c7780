"""The command ``skcalib compare``: what a calibration gains on one's own texts."""

import argparse
import contextlib
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import joblib
import numpy as np
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skcalib import NeighborSmoothing, Whitening
from skcalib.cli.options import add_model_and_texts, encoder_of, with_labels
from skcalib.evaluation import ScoreTable
from skcalib.evaluation._labeled import r_precisions
from skcalib.export._writing import written_whole
from skcalib.inputs.texts import distinct
from skcalib.inputs.vectors import unit_rows
from skcalib.model_selection.encoders import folder_for, quiet
from skcalib.model_selection.self_retrieval import FEWEST_TEXTS, views_of
from skcalib.model_selection.views import near_duplicates
from skcalib.statistics.bootstrap import Difference, leads

KEPT = 128  # dimensions of the PCA
FEWEST = 40  # texts of a half with others of their label

Fold = tuple[np.ndarray, Any]  # vectors to fit on, and a function from a pipeline to `Scores`


class Scores(NamedTuple):
    """Scores of texts by a step."""

    scores: np.ndarray
    evidence: np.ndarray  # the same, and what a text adds to the scores of others


class Row(NamedTuple):
    """Steps after the encoder, their score, and its lead over raw vectors."""

    name: str
    steps: list[Any]
    score: float
    gain: Difference


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its arguments."""
    parser.description = (
        "Compare raw vectors, common steps and calibrations on your own texts, each fitted on "
        "one half of them and scored on the other. With --labels, the score is R-precision: "
        "the share of a text's nearest neighbors that have its label. Without labels it is "
        "self-retrieval: how well a part of a text finds the rest."
    )
    parser.epilog = "Example: skcalib compare minilm texts.csv --column text --labels topic"
    add = parser.add_argument
    add_model_and_texts(add)
    groups = "approximate number of topics or groups; default: the number of labels"
    add("--n-groups", type=int, metavar="K", help=groups)
    add("--n-texts", type=int, default=2000, help="sample of texts; default: 2000")
    saved = "new file for the recommended pipeline, fitted on all texts, for joblib.load"
    add("--save", metavar="FILE", help=saved)
    add("-q", "--quiet", action="store_true", help="no progress bar")


def run(options: argparse.Namespace) -> None:
    """Print the table and what it recommends, and save that."""
    label_of = with_labels(options.texts, options.column, options.labels)
    texts, has_labels = [*label_of], options.labels is not None
    rng = np.random.default_rng(0)
    sample = [texts[row] for row in rng.permutation(len(texts))[: options.n_texts]]
    n_groups = options.n_groups or (len({*label_of.values()}) if has_labels else None)
    with contextlib.ExitStack() as stack:
        if options.save:  # a file that exists is refused before anything is encoded
            file = stack.enter_context(written_whole(options.save, is_file=True))
        memory = stack.enter_context(folder_for(options.memory))
        stack.enter_context(quiet())
        plain = encoder_of(options)
        encoder = clone(plain).set_params(memory=memory, verbose=not options.quiet)
        if has_labels:
            codes = distinct([label_of[text] for text in sample])[1]
            scored_rows(codes)  # or an error, before texts are encoded
            folds, kept = by_labels(encoder.fit_transform(sample), codes)
            sample = [sample[row] for row in kept]
        else:
            folds, sample = _by_views(encoder, sample, options.n_texts)
        candidates = steps_for(folds, n_groups, by_labels=has_labels)
        rows = compared(folds, candidates, near_duplicates(sample))
        best = recommended(rows)
        if options.save:
            pipeline = make_pipeline(encoder, *map(clone, best.steps)).fit(texts)
            pipeline[0].set_params(memory=None)  # a folder of this machine
            joblib.dump(pipeline, file)
    score = "R-precision" if has_labels else "self-retrieval"
    gains = 100 * np.array([[[row.gain.low, row.gain.high]] for row in rows])
    scores = np.array([[row.score] for row in rows])
    names = tuple(row.name for row in rows)
    print(ScoreTable(names, (f"{score} (gain, 95 %)",), scores, gains))
    print(f"\n{_advice(best, rows, len(sample))}")
    if not has_labels:
        print("This score does not see topics. Give --labels if you have some.")
    if best.steps:
        code = ", ".join(" ".join(repr(s).split()) for s in [plain, *best.steps])
        print(f"\n    make_pipeline({code})")
    if options.save:
        print(f"\nWrote {options.save}. Load it with joblib.load({options.save!r}).")


def scored_rows(codes: np.ndarray) -> list[np.ndarray]:
    """Return the rows to score of each half: those with others of their label."""
    halves = [np.arange(i, len(codes), 2) for i in (0, 1)]
    scored = [rows[np.bincount(codes[rows])[codes[rows]] > 1] for rows in halves]
    if (n := min(map(len, scored))) < FEWEST:
        raise ValueError(
            f"--labels: {n} of {len(codes) // 2} texts of a half have others with their label; "
            f"expected {FEWEST} or more. Give more texts, or coarser labels."
        )
    return scored


def by_labels(vectors: np.ndarray, codes: np.ndarray) -> tuple[list[Fold], np.ndarray]:
    """Return folds by R-precision, each half of the texts in turn, and the rows scored."""
    scored = scored_rows(codes)
    scores = [partial(_precisions, vectors=vectors[rows], codes=codes[rows]) for rows in scored]
    return [(vectors[1::2], scores[0]), (vectors[::2], scores[1])], np.concatenate(scored)


def _precisions(fitted: Any, vectors: np.ndarray, codes: np.ndarray) -> Scores:
    precision, given = r_precisions(unit_rows(fitted.transform(vectors))[0], codes)
    # Two neighbors are in the scores of each other. So the mean depends on a text by its score
    # and by what it adds to others. By scores alone, one of seven files of random labels has a
    # step that seems to gain.
    return Scores(precision, precision + given - given.mean())


def _by_views(encoder: Any, texts: list[str], n_texts: int) -> tuple[list[Fold], list[str]]:
    """Return folds by how well parts of texts are found, and the texts scored."""
    texts = views_of(texts, n_texts=n_texts, random_state=0).sample
    halves = [views_of(texts[i::2], n_texts=n_texts, random_state=0) for i in (0, 1)]
    fits = [encoder.fit_transform(views.sample) for views in halves]
    of_views = [encoder.transform(views.texts) for views in halves]

    def scored(fitted: Any, i: int) -> Scores:
        ranks = halves[i].reciprocal_ranks(fitted.transform(of_views[i])).mean(axis=0)
        return Scores(ranks, ranks)

    folds = [(fits[1 - i], lambda fitted, i=i: scored(fitted, i)) for i in (0, 1)]
    return folds, [text for views in halves for text in views.sample]


def steps_for(
    folds: list[Fold], n_groups: int | None, *, by_labels: bool
) -> dict[str, list[Any]]:
    """Return the steps to compare, by name."""
    smallest = min(min(fit.shape) for fit, _ in folds)
    default = Whitening(power="auto")
    is_raw = any(clone(default).fit(fit).power_ > 0 for fit, _ in folds)
    steps: dict[str, list[Any]] = {"raw": [], "mean subtracted": [Whitening(power=0)]}
    if is_raw:
        steps["StandardScaler"] = [StandardScaler()]
    if smallest > KEPT:
        steps[f"PCA({KEPT})"] = [PCA(KEPT, random_state=0)]
    steps["the default"] = [default]
    if is_raw and not by_labels:
        steps["graded similarity"] = [Whitening(power="auto", n_groups="many")]
    if n_groups is not None:
        steps[f"{n_groups} groups"] = [Whitening(power="auto", n_groups=n_groups)]
    if by_labels:
        for name in [*steps][2:]:  # those after the mean subtracted
            steps[f"{name}, smoothed"] = [*steps[name], NeighborSmoothing()]
    return steps


def compared(
    folds: list[Fold], candidates: dict[str, list[Any]], alike: np.ndarray
) -> list[Row]:
    """Return the scores of candidates, raw vectors first, and their simultaneous leads.

    ``alike`` has the group of each text; texts that share most of their words are one piece of
    evidence. Steps that score every text as others before do are left out.
    """
    scores: list[np.ndarray] = []
    evidence, kept = [], []
    for name, steps in candidates.items():
        pipeline = make_pipeline("passthrough", *steps)
        parts = [scored(clone(pipeline).fit(fit)) for fit, scored in folds]
        of_steps = np.concatenate([part.scores for part in parts])
        if not any(np.array_equal(of_steps, other) for other in scores):
            scores.append(of_steps)
            evidence.append(np.concatenate([part.evidence for part in parts]))
            kept.append(name)
    gains = leads(np.stack(evidence), alike, seed=0)
    if alike.max() + 1 < FEWEST_TEXTS:  # no evidence: only the range of scores is certain
        gains = [replace(gain, low=-1.0, high=1.0) for gain in gains]
    return [
        Row(name, candidates[name], 100 * of_steps.mean(), gain)
        for name, of_steps, gain in zip(kept, scores, gains, strict=True)
    ]


def recommended(rows: list[Row]) -> Row:
    """Return the best of the rows that gain beyond chance, or that of raw vectors."""
    gaining = [row for row in rows if row.gain.is_gain]
    return max(gaining, key=attrgetter("score"), default=rows[0])


def _advice(best: Row, rows: list[Row], n: int) -> str:
    if best is rows[0]:
        return f"No gain on {n} texts is beyond chance: keep raw vectors, or give more texts."
    is_first = best.score == max(row.score for row in rows)
    which = "the best" if is_first else "the best that is not by chance"
    return f"{best.name!r} is {which} on {n} texts: {best.gain} above raw vectors."
