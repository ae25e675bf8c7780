"""The command `skcalib classify`."""

import csv
import re

import numpy as np
import pytest

from skcalib import BertEncoder, ZeroShotClassifier
from skcalib.__main__ import main


@pytest.fixture
def files(words, tmp_path):
    """Texts, names and labels: a blank line of the texts belongs to one of the labels."""
    texts = [" ".join(words[i % 9 : i % 9 + 4]) + f" {words[i % 7]}" for i in range(24)]
    lines = [*texts[:5], "", *texts[5:]]
    labels = [words[0] if i == 1 else words[1] if i == 2 else "" for i in range(25)]
    for name, content in (("texts", lines), ("names", words[:2]), ("labels", labels)):
        (tmp_path / name).write_text("\n".join(content) + "\n", encoding="utf-8")
    return tmp_path, texts, [label or None for label in labels[:5] + labels[6:]]


def run(folder, model, *options):
    output = ["-o", str(folder / "out.csv")]
    return main(["classify", str(model), str(folder / "texts"), *options, *output])


def test_texts_get_the_classes_of_the_estimator(files, tiny_bert, words, capsys):
    folder, texts, labels = files
    options = ["--classes", str(folder / "names"), "--labels", str(folder / "labels")]
    assert run(folder, tiny_bert, *options, "--rejection-rate", "0.2", "--other", "?") == 0
    assert "24 texts in 2 classes" in capsys.readouterr().out
    with (folder / "out.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    model = ZeroShotClassifier(
        BertEncoder(tiny_bert), list(words[:2]), rejection_rate=0.2, other="?"
    ).fit(texts, labels)
    assert [row["text"] for row in rows] == texts
    assert [row["label"] for row in rows] == model.predict(texts).tolist()
    scores = np.abs(model.decision_function(texts))  # of two classes
    assert [float(row["score"]) for row in rows] == pytest.approx(scores.tolist(), abs=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "needs --classes FILE, --labels LABELS, or both"),
        (["--classes", "none"], "'none' does not exist; give a file with one text per line"),
        (
            ["--labels", "topic"],
            "'topic' is no file. Give a file .* set --column to",
        ),
        (["--classes", "names", "--rejection-rate", "2"], "'rejection_rate' parameter"),
        (["--classes", "twice"], "class_names has 'a' twice"),
        (
            ["--classes", "names", "--labels", "strange"],
            "'strange' has the label 'nothing known', which is no class in 'names'",
        ),
        (["--labels", "long"], "'long' has 'a' in line 26, and"),
        (["--labels", "short"], "'short' has '' in line 25, and"),
    ],
)
def test_errors_leave_nothing(files, tiny_bert, words, options, message, capsys, monkeypatch):
    folder, *_ = files
    monkeypatch.chdir(folder)
    (folder / "long").write_text("a\n" * 40, encoding="utf-8")
    (folder / "short").write_text("a\n" * 24, encoding="utf-8")
    (folder / "strange").write_text("\nnothing known\n" + "\n" * 23, encoding="utf-8")
    (folder / "twice").write_text("a\nb\na\n", encoding="utf-8")
    assert run(folder, tiny_bert, *options) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (folder / "out.csv").exists()


def test_labels_are_a_column_or_a_file(files, tiny_bert):
    folder, texts, labels = files
    with (folder / "table.csv").open("w", newline="", encoding="utf-8") as stream:
        rows = [(text, label or "") for text, label in zip(texts, labels, strict=True)]
        csv.writer(stream).writerows([("text", "topic"), *rows])
    written = set()
    for file, *options in (
        ("texts", "--labels", folder / "labels"),
        ("table.csv", "--column", "text", "--labels", "topic"),
    ):
        output = folder / f"of {file}"
        options += ["--pooling", "max", "-o", output]
        assert main(["classify", *map(str, [tiny_bert, folder / file, *options])]) == 0
        written.add(output.read_text(encoding="utf-8"))
    assert len(written) == 1


def test_a_file_that_exists_is_not_replaced(files, tiny_bert, capsys):
    folder, *_ = files
    (folder / "out.csv").write_text("kept", encoding="utf-8")
    assert run(folder, tiny_bert, "--classes", str(folder / "names")) == 2
    assert "exists already" in capsys.readouterr().err
    assert (folder / "out.csv").read_text(encoding="utf-8") == "kept"


def test_an_empty_folder_is_not_replaced_by_a_file(files, tiny_bert, capsys, monkeypatch):
    folder, *_ = files
    (folder / "out.csv").mkdir()
    monkeypatch.setattr(BertEncoder, "fit", lambda *_: pytest.fail("encoded"))
    assert run(folder, tiny_bert, "--classes", str(folder / "names")) == 2
    assert "exists already" in capsys.readouterr().err
    assert (folder / "out.csv").is_dir()


@pytest.mark.filterwarnings("ignore:There is only one class")
def test_one_class_is_one_class(minilm, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("a cat\na dog\na car\n")
    (tmp_path / "names.txt").write_text("animals\n")
    texts, names, out = (str(tmp_path / name) for name in ("texts.txt", "names.txt", "out.csv"))
    assert main(["classify", str(minilm), texts, "--classes", names, "-o", out]) == 0
    assert "3 texts in 1 class." in capsys.readouterr().out
