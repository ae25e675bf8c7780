"""The command ``skcalib classify``."""

import argparse
import csv

import numpy as np

from skcalib.cli.options import (
    OF_TEXTS,
    add_encoding,
    add_model_and_texts,
    add_state,
    encoder_of,
    state_of,
    texts_in,
    with_labels,
)
from skcalib.export._writing import written_whole
from skcalib.model_selection._encoders import folder_for
from skcalib.similarity.classifier.estimator import ZeroShotClassifier


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its arguments."""
    parser.description = (
        "Classify texts by the names of the classes, by labels of a few of the texts, or by "
        "both, and write a CSV file with each text, its class and the score for that class (of "
        "two, its lead). The texts also calibrate the vectors, even without labels."
    )
    parser.epilog = "Example: skcalib classify minilm texts.txt --classes names.txt -o out.csv"
    add = parser.add_argument
    add_model_and_texts(add, "- for standard input; blank texts are left out")
    add("--classes", metavar="FILE", help="name of a class per line; '_' and '-' are spaces")
    labels = f"label of each text, blank if it has none: {OF_TEXTS}"
    add("--labels", metavar="LABELS", help=labels)
    rejected = "share of texts like these that may belong to no class, such as 0.05"
    add("--rejection-rate", type=float, metavar="R", help=rejected)
    add("--other", default="other", help="label of texts of no class; default: other")
    add("-o", "--output", required=True, metavar="CSV", help="new file to write to")
    add_state(add)
    add_encoding(add)


def run(options: argparse.Namespace) -> None:
    """Fit the classifier on the texts, and write their classes."""
    names = options.classes and texts_in(options.classes)
    texts, labels = with_labels(
        options.texts, options.labels, column=options.column, every=False
    )
    if names is None and labels is None:
        raise ValueError("skcalib classify needs --classes FILE, --labels LABELS, or both.")
    if names and (unknown := {*(labels or ())} - {None, *names}):
        raise ValueError(
            f"{options.labels!r} has the label {min(unknown)!r:.60}, which is no class in "
            f"{options.classes!r}. Add it there, or correct it."
        )
    # A path that exists is refused before anything is encoded, and each text is encoded once.
    with (
        written_whole(options.output, is_file=True) as file,
        folder_for(options.memory) as memory,
    ):
        model = ZeroShotClassifier(
            encoder_of(options, memory=memory, **state_of(options)),
            names,
            rejection_rate=options.rejection_rate,
            other=options.other,
        )
        predicted = model.fit(texts, labels).predict(texts)
        scores = model.decision_function(texts)
        scores = np.abs(scores) if scores.ndim == 1 else scores.max(axis=1)
        with file.open("w", newline="", encoding="utf-8") as stream:
            rows = zip(texts, predicted, scores.round(4).tolist(), strict=True)
            csv.writer(stream).writerows([("text", "label", "score"), *rows])
    n = len(model.classes_)
    print(f"Wrote {options.output}: {len(texts)} texts in {n} class{'es' * (n > 1)}.")
