"""The command ``skcalib classify``."""

import argparse
import csv
import re

import numpy as np

from skcalib.cli.options import add_column, add_encoding, encoder_of, texts_in, with_groups
from skcalib.export._writing import written_whole
from skcalib.model_selection._encoders import folder_for
from skcalib.similarity.classifier.estimator import ZeroShotClassifier

# Parameters of the classifier, and the options that set them.
PARAMETERS = {"class_names": "--classes", "rejection_rate": "--rejection-rate"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its arguments."""
    parser.description = (
        "Classify texts by the names of the classes, by labels of a few of the texts, or by "
        "both, and write a CSV file with each text, its class and the score for that class (of "
        "two, its lead). The texts also calibrate the vectors, even without labels."
    )
    parser.epilog = "Example: skcalib classify minilm texts.txt --classes names.txt -o out.csv"
    add = parser.add_argument
    add("model", metavar="MODEL", help="hub id, folder, or minilm (of the demo extra)")
    add(
        "texts",
        metavar="TEXTS",
        help="UTF-8 file, a text per line or a table; blank ones are left out",
    )
    add_column(add)
    add("--classes", metavar="FILE", help="name of a class per line; '_' and '-' are spaces")
    labels = "label of each text, on the line of the same number; blank if it has none"
    add("--labels", metavar="FILE", help=labels)
    rejected = "share of texts like these that may belong to no class, such as 0.05"
    add("--rejection-rate", type=float, metavar="R", help=rejected)
    add("--other", default="other", help="label of texts of no class; default: other")
    add("-o", "--output", required=True, metavar="CSV", help="new file to write to")
    add_encoding(add, queries=False)


def run(options: argparse.Namespace) -> None:
    """Fit the classifier on the texts, and write their classes."""
    names = options.classes and texts_in(options.classes)
    texts, labels = with_groups(
        options.texts, options.labels, column=options.column, every=False
    )
    # A file that exists is refused before anything is encoded, and each text is encoded once.
    with written_whole(options.output) as file, folder_for(options.memory) as memory:
        model = ZeroShotClassifier(
            encoder_of(options, memory=memory),
            names,
            rejection_rate=options.rejection_rate,
            other=options.other,
        )
        try:
            predicted = model.fit(texts, labels).predict(texts)
        except ValueError as error:
            raise ValueError(_by_options(str(error))) from error
        scores = model.decision_function(texts)
        scores = np.abs(scores) if scores.ndim == 1 else scores.max(axis=1)
        with file.open("w", newline="", encoding="utf-8") as stream:
            rows = zip(texts, predicted, scores.round(4).tolist(), strict=True)
            csv.writer(stream).writerows([("text", "label", "score"), *rows])
    print(f"Wrote {options.output}: {len(texts)} texts in {len(model.classes_)} classes.")


def _by_options(message: str) -> str:
    """Name the options in place of the parameters that they set."""
    message = re.sub(r"\by has\b", "--labels has", message)
    for name, option in PARAMETERS.items():
        message = re.sub(rf"\b{name}\b", option, message)
    return message
