"""The command `skcalib calibrate`."""

import json
import os
import re
import sys
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from searches import chosen, rows, searched
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, Whitening
from skcalib.__main__ import main


@pytest.fixture
def file(sentences, tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n\n".join(sentences) + "\n", encoding="utf-8")
    return str(path)


def command(model, file, output, *options):
    fixed = ["--n-texts", "100", "--layers", "0,3", "--pooling", "mean, max"]
    return main(["calibrate", str(model), file, "--output", str(output), *fixed, *options])


def test_command_writes_pipeline_and_report(tiny_bert, file, sentences, tmp_path, capsys):
    output = tmp_path / "new" / "calibrated"
    assert command(tiny_bert, file, output, "--random-state", "5") == 0
    files = ["README.md", "pipeline.joblib", "report.json"]
    assert sorted(path.name for path in output.iterdir()) == files
    card = (output / "README.md").read_text("utf-8")
    assert card.startswith("# ")
    assert "## Data and figures" in card
    assert list(output.parent.iterdir()) == [output]  # nothing unfinished beside it
    pipeline = joblib.load(output / "pipeline.joblib")
    params = {"pooling": ["mean", "max"], "layers": [0, 3], "n_texts": 100, "random_state": 5}
    expected = searched(tiny_bert, sentences, **params)
    assert_allclose(
        pipeline.transform(sentences), expected.transform(sentences), rtol=1e-5, atol=1e-5
    )
    report = json.loads((output / "report.json").read_text(encoding="utf-8"))
    assert report["fingerprint"] == pipeline["encode"].fingerprint_
    assert (report["texts"], report["n_texts"], report["random_state"]) == (file, 100, 5)
    assert report["chosen"] == report["candidates"][expected.best_index_]
    found = pd.DataFrame(report["candidates"])
    described = ["pooling", "layers", "candidate", "calibrator"]
    assert found[described].to_dict() == pd.DataFrame(expected.cv_results_)[described].to_dict()
    assert_allclose(found["score"], expected.cv_results_["score"], atol=1e-6)
    assert report["reason"] == expected.reason_
    assert {"skcalib", "python", "scikit-learn", "torch"} <= set(report["versions"])
    printed = capsys.readouterr()
    assert printed.err == ""
    assert f"\n\n{expected.reason_}\n\nWrote " in printed.out
    table = printed.out.split("\n\n")[0]
    lines = [re.split(r" *\| *", line)[1:-1] for line in table.splitlines()]
    assert lines[0] == ["", "pooling", "layer", "candidate", "score", "halves", "gain over raw"]
    assert lines[2][:4] == ["raw", "mean", "3", "raw"]
    best = chosen(expected)
    assert lines[3][:4] == ["chosen", best["pooling"], str(best["layers"]), best["candidate"]]
    assert [float(cell) for cell in lines[3][4:6]] == pytest.approx(
        [100 * best["score"], 100 * best["halves"]], abs=0.051
    )
    assert len(lines) == 2 + len(rows(expected)) + (expected.best_index_ == 0)
    assert f"Load it with joblib.load({str(output / 'pipeline.joblib')!r})" in printed.out
    assert pipeline["encode"].memory is None


def test_command_takes_a_number_of_clusters(tiny_bert, file, tmp_path):
    assert command(tiny_bert, file, tmp_path / "out", "--quiet", "--n-groups", "4") == 0
    whitening = joblib.load(tmp_path / "out" / "pipeline.joblib")["calibrate"]
    assert whitening.n_groups == 4


def test_a_reader_that_stops_reading_loses_nothing(tiny_bert, file, tmp_path, monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)  # as `| head` closes it
    with open(writer, "w") as pipe:
        monkeypatch.setattr("sys.stdout", pipe)
        assert command(tiny_bert, file, tmp_path / "out") == 0
    assert (tmp_path / "out" / "report.json").is_file()


def test_command_writes_a_sentence_transformer(tiny_bert, file, sentences, tmp_path, capsys):
    package = pytest.importorskip("sentence_transformers", minversion="6")
    output = tmp_path / "calibrated"
    options = ["--prompt", "the dog ", "--format", "sentence-transformers"]
    assert command(tiny_bert, file, output, *options) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"calibrated", Path(file).name}
    report = json.loads((output / "report.json").read_text(encoding="utf-8"))
    card = (output / "README.md").read_text("utf-8").partition("## Data and figures")[2]
    assert all(part in card for part in (Path(file).name, report["reason"], "| raw "))
    chosen, prompt = report["chosen"], report["prompt"]
    params = {"pooling": chosen["pooling"], "layers": chosen["layers"], "prompt": prompt}
    calibrator = chosen["calibrator"]
    calibrator = (
        calibrator
        if calibrator == "passthrough"
        else eval(calibrator, {"Whitening": Whitening})
    )
    expected = make_pipeline(BertEncoder(tiny_bert, **params), calibrator)
    expected = expected.fit_transform(sentences)
    model = package.SentenceTransformer(str(output), device="cpu")
    assert_allclose(model.encode(sentences), expected, atol=1e-4 * np.abs(expected).max())


def test_a_format_that_cannot_hold_a_task_is_refused(
    tiny_bert, file, tmp_path, capsys, encoded
):
    pytest.importorskip("sentence_transformers", minversion="6")
    options = ["--format", "sentence-transformers", "--task", "topics"]
    assert command(tiny_bert, file, tmp_path / "model", *options) == 2
    assert re.search("NeighborSmoothing.*; or use save_onnx", capsys.readouterr().err)
    assert encoded == []


def test_command_takes_groups(tiny_bert, file, sentences, tmp_path, capsys):
    # A line ends at a line feed or a carriage return alone.
    lines = "\ufeff" + 25 * "a\u2028b\r\n\r\nc\x0cd\x85e\n\n third\r\rlast\n\n"
    (tmp_path / "groups.txt").write_bytes(lines.encode())
    options = ["--groups", str(tmp_path / "groups.txt")]
    assert command(tiny_bert, file, tmp_path / "m", *options) == 0
    erasure = joblib.load(tmp_path / "m" / "pipeline.joblib")["erase"]
    assert erasure.groups_.tolist() == ["a\u2028b", "c\x0cd\x85e", "last", "third"]


def test_lines_of_texts_and_groups_belong_together(tiny_bert, sentences, tmp_path, capsys):
    groups = [f"g{i % 3}" for i in range(100)]
    texts, options = tmp_path / "texts.txt", ["--groups", str(tmp_path / "groups.txt")]

    def run(text_lines, group_lines, name):
        texts.write_text("\n".join(text_lines), "utf-8")
        (tmp_path / "groups.txt").write_text("\n".join(group_lines), "utf-8")
        return command(tiny_bert, str(texts), tmp_path / name, *options)

    def mean_of_group(name):
        return joblib.load(tmp_path / name / "pipeline.joblib")["erase"].means_

    assert run(sentences, groups, "whole") == 0
    blank = ["", *sentences[:50], "", *sentences[50:]]
    assert run(blank, ["", *groups[:50], "g1", *groups[50:], "", ""], "blank") == 0
    assert_allclose(mean_of_group("blank"), mean_of_group("whole"), atol=1e-6)
    capsys.readouterr()
    for text_lines, group_lines, message in (
        (sentences, [*groups[:50], "", *groups[51:]], "groups.txt' has '' in line 51, and"),
        (sentences, groups[:99], "groups.txt' has '' in line 100, and"),
        (sentences, [*groups, "g0"], "groups.txt' has 'g0' in line 101, and"),
        (["", " "], ["g0"], "texts.txt' has no text; give a file"),
    ):
        assert run(text_lines, group_lines, "none") == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("package", ["sentence-transformers", "onnx"])
def test_a_missing_package_is_found_out_before_anything_is_encoded(
    package, tiny_bert, file, tmp_path, capsys, encoded, monkeypatch
):
    monkeypatch.setitem(sys.modules, package.replace("-", "_"), None)
    assert command(tiny_bert, file, tmp_path / "out", "--format", package) == 2
    assert re.search(f"pip install '?{package}", capsys.readouterr().err)
    assert encoded == []


def test_quiet_command_prints_nothing(tiny_bert, file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert command(tiny_bert, file, tmp_path / "shown") == 0
    assert "search" in capsys.readouterr().err
    assert command(tiny_bert, file, tmp_path / "out", "-q") == 0
    assert capsys.readouterr() == ("", "")


def test_command_takes_layers_by_name_and_several(tiny_bert, file, tmp_path):
    command(tiny_bert, file, tmp_path / "out", "-q", "--layers", "first_last,-2+-1")
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    found = [c["layers"] for c in report["candidates"] if c["layers"] != 3]
    # Two poolings; raw and whitened.
    assert sorted(found) == 4 * [[1, 3]] + 4 * [[2, 3]]


def test_output_that_exists_is_never_touched(tiny_bert, file, tmp_path, capsys, encoded):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    for output in (folder, folder / "thesis.txt", Path(file) / "below"):
        assert command(tiny_bert, file, output) == 2
        assert capsys.readouterr().err.startswith("error: ")
    assert [path.read_text() for path in folder.iterdir()] == ["mine"]
    assert encoded == []  # found out before anything is encoded
    (folder / "thesis.txt").unlink()
    assert command(tiny_bert, file, folder, "-q") == 0  # an empty folder will do
    assert (folder / "pipeline.joblib").is_file()


@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()])
def test_failure_in_the_middle_leaves_nothing(tiny_bert, file, error, tmp_path, monkeypatch):
    def dump(pipeline, path):
        path.write_bytes(b"half of it")
        raise error

    monkeypatch.setattr(joblib, "dump", dump)
    output = tmp_path / "below" / "out"
    assert command(tiny_bert, file, output, "-q") == (2 if isinstance(error, OSError) else 130)
    assert list(output.parent.iterdir()) == []


@pytest.mark.filterwarnings("default:Found:UserWarning")
def test_command_on_few_texts_warns_in_one_line(tiny_bert, sentences, tmp_path, capsys):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(sentences))
    arguments = ["calibrate", tiny_bert, str(path), "--output", str(tmp_path / "out")]
    assert main([*arguments, "--layers", "3", "--pooling", "mean"]) == 0
    assert re.fullmatch(r"warning: .*fewer than 200.*\n", capsys.readouterr().err)


@pytest.mark.usefixtures("minilm")
@pytest.mark.filterwarnings("ignore:.*unknown to this model")  # the tiny BERT knows few words
@pytest.mark.parametrize("named", ["model", "texts"])
def test_command_on_the_embedded_defaults(named, tiny_bert, file, tmp_path, capsys):
    output = tmp_path / "calibrated"
    model, texts = ("minilm", file) if named == "model" else (tiny_bert, "toy")
    options = ["--layers", "-1", "--pooling", "mean", "--n-texts", "20"]
    assert main(["calibrate", model, texts, "--output", str(output), *options]) == 0
    assert "Load it with joblib.load" in capsys.readouterr().out
    pipeline = joblib.load(output / "pipeline.joblib")
    assert pipeline.named_steps["encode"].layers_ == ((6,) if named == "model" else (3,))
