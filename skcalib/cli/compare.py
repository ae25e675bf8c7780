"""The command ``skcalib compare``: what a calibration gains on one's own texts."""

import argparse
import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import joblib
import numpy as np
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skcalib import NeighborSmoothing, Whitening
from skcalib.cli.options import (
    OF_TEXTS,
    add_encoding,
    add_model_and_texts,
    add_state,
    encoder_of,
    state_of,
    with_labels,
)
from skcalib.evaluation._labeled import r_precisions
from skcalib.export._writing import written_whole
from skcalib.inputs.labels import labels_of
from skcalib.inputs.texts import distinct
from skcalib.inputs.vectors import unit_rows
from skcalib.markdown import markdown
from skcalib.model_selection.encoders import folder_for, quiet
from skcalib.model_selection.self_retrieval import views_of

KEPT = 128  # dimensions of a PCA
FEWEST = 40  # texts with others of their label, for an interval
NORMAL = 1.96  # of a 95 % interval

Part = tuple[np.ndarray, Any]  # vectors to fit on, and a function from a step to scores


class Row(NamedTuple):
    """A candidate, and its score for each text."""

    name: str
    step: Any
    scores: np.ndarray

    def gain(self, raw: "Row") -> tuple[float, float]:
        """Mean difference to raw vectors, and half the width of its 95 % interval."""
        difference = 100 * (self.scores - raw.scores)
        return difference.mean(), NORMAL * difference.std() / np.sqrt(len(difference))


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
    add_model_and_texts(add, "- for standard input")
    labels = f"label of each text, which no calibration sees: {OF_TEXTS}"
    add("--labels", metavar="LABELS", help=labels)
    groups = "approximate number of topics or groups; default: the number of labels"
    add("--n-groups", type=int, metavar="K", help=groups)
    add("--n-texts", type=int, default=2000, help="sample of texts; default: 2000")
    saved = "new file for the recommended pipeline, fitted on all texts, for joblib.load"
    add("--save", metavar="FILE", help=saved)
    add_state(add)
    add_encoding(add)
    add("-q", "--quiet", action="store_true", help="no progress bar")


def run(options: argparse.Namespace) -> None:
    """Print the table, what it recommends, and save that."""
    texts, labels = with_labels(options.texts, options.labels, column=options.column)
    if labels is not None:
        kept = [row for row, label in enumerate(labels) if label is not None]
        texts, labels = [texts[row] for row in kept], [labels[row] for row in kept]
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(texts))[: options.n_texts]
    sample = [texts[row] for row in rows]
    n_groups = options.n_groups or (None if labels is None else len({*labels}))
    with contextlib.ExitStack() as stack:
        # A file that exists is refused before anything is encoded.
        file = (
            stack.enter_context(written_whole(options.save, is_file=True))
            if options.save
            else None
        )
        memory = stack.enter_context(folder_for(options.memory))
        stack.enter_context(quiet())
        plain = encoder_of(options, **state_of(options))
        encoder = clone(plain).set_params(memory=memory, verbose=not options.quiet)
        if labels is None:
            parts, score = list(_by_views(encoder, sample, options.n_texts)), "self-retrieval"
        else:
            chosen = [labels[row] for row in rows]
            parts, score = list(_by_labels(encoder, sample, chosen)), "R-precision"
        most = min(min(fit.shape) for fit, _ in parts)
        found = []
        for name, step in _candidates(n_groups, most, smooths=labels is not None):
            scores = [scored(clone(step).fit(fit)) for fit, scored in parts]
            found.append(Row(name, step, np.concatenate(scores)))
        best = _best(found)
        if file is not None:
            pipeline = make_pipeline(encoder, *_steps(best)).fit(texts)
            pipeline[0].set_params(memory=None)  # a folder of this machine
            joblib.dump(pipeline, file)
    print(_table(found, score))
    print(f"\n{_advice(best, found[0], plain, labels is None)}")
    if options.save:
        print(f"\nWrote {options.save}. Load it with joblib.load({options.save!r}).")


def _candidates(n_groups: int | None, most: int, smooths: bool) -> list[tuple[str, Any]]:
    """Return what is compared; a PCA keeps fewer dimensions than ``most``."""
    default = Whitening(power="auto")
    steps = [("raw", FunctionTransformer()), ("mean subtracted", Whitening(power=0))]
    steps += [(f"PCA({k})", PCA(k, random_state=0)) for k in (KEPT,) if k < most]
    steps += [("the default", default), ("graded similarity", _groups("many"))]
    if smooths:
        steps.append(("the default, smoothed", make_pipeline(default, NeighborSmoothing())))
    if n_groups is not None:
        if 1 < n_groups < most:
            steps.append((f"PCA({n_groups})", PCA(n_groups, random_state=0)))
        grouped = _groups(n_groups)
        steps.append((f"{n_groups} groups", grouped))
        if smooths:
            steps.append(
                (f"{n_groups} groups, smoothed", make_pipeline(grouped, NeighborSmoothing()))
            )
    return steps


def _groups(n_groups: int | str) -> Whitening:
    return Whitening(power="auto", n_groups=n_groups)


def _by_labels(encoder: Any, texts: list[str], labels: list[str]) -> Iterator[Part]:
    """Yield each half to fit on, and the R-precision of texts of the other."""
    vectors, codes = encoder.fit_transform(texts), distinct(labels_of(labels, "labels"))[1]
    for i in (0, 1):
        half, of_half = vectors[i::2], codes[i::2]
        has_others = np.bincount(of_half)[of_half] > 1
        if has_others.sum() < FEWEST:
            raise ValueError(
                f"--labels: {has_others.sum()} of {len(half)} texts of a half have others with "
                f"their label; expected {FEWEST} or more. Give more texts, or coarser labels."
            )
        kept = half[has_others], of_half[has_others]
        yield (
            vectors[1 - i :: 2],
            lambda step, of=kept: r_precisions(unit_rows(step.transform(of[0]))[0], of[1]),
        )


def _by_views(encoder: Any, texts: list[str], n_texts: int) -> Iterator[Part]:
    """Yield each half to fit on, and how well parts of the texts of the other are found."""
    sample = views_of(texts, n_texts=n_texts, random_state=0).sample
    halves = [views_of(sample[i::2], n_texts=n_texts, random_state=0) for i in (0, 1)]
    fits = [encoder.fit_transform(views.sample) for views in halves]
    for i, views in enumerate(halves):
        vectors = encoder.transform(views.texts)
        yield (
            fits[1 - i],
            lambda step, w=views, v=vectors: w.reciprocal_ranks(step.transform(v)).mean(axis=0),
        )


def _table(found: list[Row], score: str) -> str:
    body = []
    for row in found:
        gain, half = row.gain(found[0])
        shown = "" if row is found[0] else f"{gain:+z.1f} ± {half:.1f}"
        body.append([row.name, f"{100 * row.scores.mean():.1f}", shown])
    return markdown(["", score, "gain, 95 %"], body)


def _best(found: list[Row]) -> Row:
    """Return the best row, or that of raw vectors if it gains nothing beyond chance."""
    raw, *others = found
    best = max(others, key=lambda row: row.scores.mean())
    gain, half = best.gain(raw)
    return best if gain > half else raw


def _steps(row: Row) -> list[Any]:
    """Return the steps of a row, unfitted; those of raw vectors are none."""
    if isinstance(row.step, FunctionTransformer):
        return []
    return [clone(step) for step in getattr(row.step, "named_steps", {"": row.step}).values()]


def _advice(best: Row, raw: Row, encoder: Any, by_views: bool) -> str:
    """Return a sentence, and the code to copy."""
    n = len(raw.scores)
    blind = (
        "\nThis score does not see topics. Give --labels if you have some." if by_views else ""
    )
    if best is raw:
        return f"No step gains beyond chance on {n} texts: keep raw vectors.{blind}"
    gain, half = best.gain(raw)
    code = ", ".join(" ".join(repr(step).split()) for step in [encoder, *_steps(best)])
    return (
        f"Best on {n} texts: {best.name}, {gain:+.1f} ± {half:.1f}.{blind}\n\n"
        f"    make_pipeline({code})"
    )
