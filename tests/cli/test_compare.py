"""The command ``skcalib compare``."""

import csv
import re

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.pipeline import make_pipeline

import skcalib
from skcalib import BertEncoder, NeighborSmoothing, Whitening
from skcalib.__main__ import main
from skcalib.evaluation import evaluate_labeled


@pytest.fixture
def table(tmp_path, words):
    """Texts of three topics, each of its own words."""
    rng, kinds = np.random.default_rng(0), np.array_split(words[:30], 3)
    rows = []
    for i in range(240):
        own, others = rng.choice(kinds[i % 3], 8), rng.choice(words, 6)
        rows.append((" ".join(rng.permutation([*own, *others])), f"topic {i % 3}"))
    file = tmp_path / "texts.csv"
    with file.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("text", "label"), *rows])
    return file


def compared(capsys, *arguments):
    assert main(["compare", *map(str, arguments), "-q"]) == 0
    return capsys.readouterr().out


def scores_of(printed):
    rows = re.findall(r"\| (.*?) \| +([\d.]+) \|", printed)
    return {name.strip(): float(score) for name, score in rows}


def test_scores_are_those_of_evaluate_labeled_on_the_halves(table, tiny_bert, capsys):
    printed = compared(capsys, tiny_bert, table, "--column", "text", "--labels", "label")
    found = scores_of(printed)
    with table.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    rows = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    encoder = BertEncoder(tiny_bert)
    of_groups = Whitening(noise="auto", n_groups=3)
    steps = {
        "raw": [],
        "the default": [Whitening(noise="auto")],
        "3 groups": [of_groups],
        "3 groups, smoothed": [of_groups, NeighborSmoothing()],
    }
    for name, step in steps.items():
        expected = []
        for i in (0, 1):
            half, other = rows[i::2], [row["text"] for row in rows[1 - i :: 2]]
            texts, labels = ([row[key] for row in half] for key in ("text", "label"))
            data = {"fit_on": other, "scores": ["R-precision"]}
            made = evaluate_labeled(make_pipeline(encoder, *step), texts, labels, **data)
            expected.append(made.scores[0, 0])
        assert found[name] == pytest.approx(np.mean(expected), abs=0.06)
    assert "PCA(3)" in found
    best = max(found, key=found.get)
    assert f"Best on 240 texts: {best}" in printed
    assert f"make_pipeline(BertEncoder(model={str(tiny_bert)!r}), " in printed


def test_without_labels_parts_of_texts_are_found(table, tiny_bert, capsys):
    printed = compared(capsys, tiny_bert, table, "--column", "text")
    assert {"raw", "the default", "graded similarity"} <= {*scores_of(printed)}
    assert "self-retrieval" in printed
    assert "This score does not see topics" in printed


def test_labels_may_be_a_file_and_rows_without_one_are_left_out(
    table, tiny_bert, tmp_path, capsys
):
    with table.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    with table.open("a", encoding="utf-8") as stream:
        stream.write("a text without a topic,\n")
    (tmp_path / "texts").write_text("\n".join(row["text"] for row in rows))
    (tmp_path / "labels").write_text("\n".join(row["label"] for row in rows))
    of_table = compared(capsys, tiny_bert, table, "--column", "text", "--labels", "label")
    files = tmp_path / "texts", "--labels", tmp_path / "labels"
    assert compared(capsys, tiny_bert, *files) == of_table


def test_the_code_to_copy_has_the_encoder_of_the_options(table, tiny_bert, capsys):
    options = ["--pooling", "max", "--layers", "1+3", "--max-length", "40", "--prompt", "the "]
    labels = ["--column", "text", "--labels", "label"]
    printed = compared(capsys, tiny_bert, table, *labels, *options)
    [encoder] = re.findall(r"make_pipeline\((BertEncoder\(.*?prompt='the '\)), ", printed)
    expected = BertEncoder(
        tiny_bert, pooling="max", layers=(1, 3), max_length=40, prompt="the "
    )
    made = eval(encoder, {"BertEncoder": BertEncoder})
    assert made.get_params() == expected.get_params()
    assert scores_of(printed) != scores_of(compared(capsys, tiny_bert, table, *labels))


def test_labels_without_their_texts_or_others_are_refused(table, tiny_bert, capsys):
    assert main(["compare", tiny_bert, str(table), "--labels", "label"]) == 2
    assert "set --column" in capsys.readouterr().err
    assert main(["compare", tiny_bert, str(table), "--column", "text", "--labels", "text"]) == 2
    assert "Give more texts, or coarser labels" in capsys.readouterr().err


def test_what_is_recommended_is_saved(table, tiny_bert, tmp_path, capsys):
    data, path = ["--column", "text", "--labels", "label"], tmp_path / "pipeline.joblib"
    printed = compared(capsys, tiny_bert, table, *data, "--save", path)
    assert f"Load it with joblib.load({str(path)!r})" in printed
    found = joblib.load(path)
    [code] = re.findall(r"    (make_pipeline\(.*\))$", printed, re.MULTILINE)
    with table.open(encoding="utf-8") as stream:
        texts = [row["text"] for row in csv.DictReader(stream)]
    expected = eval(code, vars(skcalib) | {"make_pipeline": make_pipeline}).fit(texts)
    assert_allclose(found.transform(texts), expected.transform(texts), atol=1e-5)
    assert main(["compare", tiny_bert, str(table), *data, "--save", str(path)]) == 2
    assert "exists already" in capsys.readouterr().err
