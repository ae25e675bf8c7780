"""The command ``skcalib calibrate``."""

from __future__ import annotations

import argparse
import json
import platform
import shutil
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from tempfile import mkdtemp

import joblib

from skcalib import BertEncoder, __version__
from skcalib._command_line import is_watched, lines_of
from skcalib.datasets import load_toy_sts, minilm_path
from skcalib.model_selection._calibrate import calibrate

PACKAGES = ("scikit-learn", "numpy", "scipy", "torch", "transformers", "joblib")
SHOWN = 8  # candidates printed beside the two that matter; the report has all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its arguments."""
    parser.description = (
        "Choose hidden states, pooling and calibration of a model by texts without labels, and "
        "save the fitted pipeline. The table shows the model as shipped first; the score is "
        "the mean reciprocal rank of finding one part of a text from another."
    )
    parser.epilog = "Tried at once: skcalib calibrate minilm toy --output calibrated"
    add = parser.add_argument
    add("model", metavar="MODEL", help="hub id, folder, or minilm (of the demo extra)")
    add("texts", metavar="TEXTS", help="UTF-8 file with a text per line, or toy")
    add("--output", required=True, metavar="FOLDER", help="new folder for what is written")
    add("--pooling", default="mean,cls,max,zipf", help="default: mean,cls,max,zipf")
    add("--layers", help="hidden states to try, such as 0,3,6; default: all")
    add("--max-length", type=int, help="tokens kept of a text; default: what the model takes")
    add("--n-texts", type=int, default=2000, help="texts in the search; default: 2000")
    add("--random-state", type=int, default=0, help="seed of the sample; default: 0")
    add("--memory", help="folder for vectors, so that each text is encoded once, ever")
    add("-q", "--quiet", action="store_true", help="no progress bar and no table")


def run(options: argparse.Namespace) -> None:
    """Search, print the table, and write the pipeline and a report."""
    output = Path(options.output).expanduser()
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise FileExistsError(
            f"--output {options.output}: there is something of that name already. Give a new "
            "folder, or remove the old one."
        )
    model = options.model
    if model == "minilm" and not Path(model).exists():
        model = minilm_path()
    if options.texts == "toy" and not Path("toy").exists():
        texts = load_toy_sts().data.ravel().tolist()
    else:
        texts = lines_of(options.texts)
    encoder = BertEncoder(model, max_length=options.max_length)
    pipeline = calibrate(
        encoder,
        texts,
        pooling=[name.strip() for name in options.pooling.split(",")],
        layers=options.layers and [int(layer) for layer in options.layers.split(",")],
        n_texts=options.n_texts,
        random_state=options.random_state,
        memory=options.memory,
        verbose=is_watched(options),
    )
    if not options.quiet:
        print(pipeline.calibration_.table(SHOWN))
    _write(output, pipeline, report(pipeline, options))


def report(pipeline, options: argparse.Namespace) -> dict:
    """Everything that was tried, and with what."""
    calibration = pipeline.calibration_
    encoder, calibrator = pipeline.named_steps.values()
    return {
        "model": options.model,
        "fingerprint": encoder.fingerprint_,
        "texts": options.texts,
        "criterion": "mean reciprocal rank of a text's part, found from another part",
        "n_texts": calibration.n_texts,
        "random_state": options.random_state,
        "shipped": asdict(calibration.shipped),
        "chosen": asdict(calibration.chosen),
        "noise": getattr(calibrator, "noise_", None),
        "shrinkage": getattr(calibrator, "shrinkage_", None),
        "candidates": [asdict(candidate) for candidate in calibration.candidates],
        "versions": {
            "skcalib": __version__,
            "python": platform.python_version(),
            **{package: version(package) for package in PACKAGES},
        },
    }


def _write(output: Path, pipeline, content: dict) -> None:
    """Write both files, or none: into a folder beside the right one, then renamed."""
    output.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(dir=output.parent, prefix=f".{output.name}-"))
    try:
        joblib.dump(pipeline, folder / "pipeline.joblib")
        (folder / "report.json").write_text(json.dumps(content, indent=2) + "\n", "utf-8")
        folder.chmod(0o755)  # mkdtemp's folders are private
        if output.exists():
            output.rmdir()  # it is empty
        folder.rename(output)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
