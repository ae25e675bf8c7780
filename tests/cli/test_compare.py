"""The command ``skcalib compare``."""

import csv
import re
import subprocess
import sys

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skcalib
from skcalib import BertEncoder, NeighborSmoothing, Whitening
from skcalib.__main__ import main
from skcalib.cli.compare import by_labels
from skcalib.cli.compare import compared as compared_rows
from skcalib.datasets import load_questions
from skcalib.evaluation import evaluate_labeled

pytestmark = pytest.mark.filterwarnings("ignore:.*unknown to this model")


@pytest.fixture
def table(tmp_path, words):
    """Texts of three topics, each of its own words, and of words that no other text has."""
    rng, kinds = np.random.default_rng(0), np.array_split(words[:30], 3)
    rows = []
    for i in range(240):
        own, others = rng.choice(kinds[i % 3], 14), rng.choice(words, 4)
        more = [f"w{i}x{j}" for j in range(12)]
        rows.append((" ".join(rng.permutation([*own, *others, *more])), f"topic {i % 3}"))
    file = tmp_path / "texts.csv"
    with file.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("text", "label"), *rows])
    return file


def compared(capsys, *arguments):
    assert main(["compare", *map(str, arguments), "-q"]) == 0
    return capsys.readouterr().out


def scores_of(printed):
    rows = re.findall(r"^\| (\S.*?) +\| +([\d.]+) ", printed, re.MULTILINE)
    return {name: float(score) for name, score in rows}


def test_scores_are_those_of_evaluate_labeled_on_the_halves(table, tiny_bert, capsys):
    printed = compared(capsys, tiny_bert, table, "--column", "text", "--labels", "label")
    found = scores_of(printed)
    with table.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    rows = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    encoder = BertEncoder(tiny_bert)
    of_groups = Whitening(power="auto", n_groups=3)
    steps = {
        "raw": [],
        "StandardScaler, smoothed": [StandardScaler(), NeighborSmoothing()],
        "the default": [Whitening(power="auto")],
        "the default, smoothed": [Whitening(power="auto"), NeighborSmoothing()],
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


def test_without_labels_parts_of_texts_are_found(table, tiny_bert, capsys):
    printed = compared(capsys, tiny_bert, table, "--column", "text")
    assert {"raw", "mean subtracted", "the default"} <= {*scores_of(printed)}
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
    options = ["--pooling", "max", "--layers", "1+3", "--prompt", "the "]
    labels = ["--column", "text", "--labels", "label"]
    printed = compared(capsys, tiny_bert, table, *labels, *options)
    [encoder] = re.findall(r"make_pipeline\((BertEncoder\(.*?prompt='the '\)), ", printed)
    expected = BertEncoder(tiny_bert, pooling="max", layers=(1, 3), prompt="the ")
    made = eval(encoder, {"BertEncoder": BertEncoder})
    assert made.get_params() == expected.get_params()
    assert scores_of(printed) != scores_of(compared(capsys, tiny_bert, table, *labels))


def test_labels_without_their_texts_or_others_are_refused_before_a_model_is_read(table, capsys):
    assert main(["compare", "no model", str(table), "--labels", "label"]) == 2
    assert "Set --column" in capsys.readouterr().err
    assert (
        main(["compare", "no model", str(table), "--column", "text", "--labels", "text"]) == 2
    )
    assert "Give more texts, or coarser labels" in capsys.readouterr().err


@pytest.mark.usefixtures("remembered")
def test_what_is_recommended_agrees_with_the_table_and_is_saved(minilm, tmp_path, capsys):
    questions, path = load_questions(), tmp_path / "pipeline.joblib"
    texts, (file, labels) = list(questions.data), (tmp_path / "texts", tmp_path / "labels")
    file.write_text("\n".join(texts))
    labels.write_text("\n".join(map(str, questions.target)))
    data = file, "--labels", labels, "--save", path
    printed = compared(capsys, minilm, *data)
    found = scores_of(printed)
    best = max(found, key=found.get)
    said = (
        rf"^'{re.escape(best)}' is the best on {len(texts)} texts: (\+.*) above raw vectors\.$"
    )
    [gain] = re.findall(said, printed, re.MULTILINE)
    row = next(row for row in printed.splitlines() if row.startswith(f"| {best} "))
    assert gain.replace(" (", ", ").strip(")") in row
    assert f"Load it with joblib.load({str(path)!r})" in printed
    [code] = re.findall(r"    (make_pipeline\(.*\))$", printed, re.MULTILINE)
    expected = eval(code, vars(skcalib) | {"make_pipeline": make_pipeline}).fit(texts)
    transformed = joblib.load(path).transform(texts)
    assert_allclose(transformed, expected.transform(texts), atol=1e-5)
    assert main(["compare", str(minilm), *map(str, data)]) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize("copies", [1, 5])
def test_labels_that_say_nothing_recommend_nothing(table, tiny_bert, tmp_path, capsys, copies):
    """At most 5 % of files may get a recommendation by chance; `rates.py` has many more."""
    with table.open(encoding="utf-8") as stream:
        texts = [row["text"] for row in csv.DictReader(stream)]
    path, labels = tmp_path / "texts", tmp_path / "labels"
    path.write_text("\n".join(copies * texts))
    memory, recommended = tmp_path / "memory", 0
    for seed in range(10):
        drawn = np.random.default_rng(seed).integers(4, size=len(texts)).astype(str)
        labels.write_text("\n".join(copies * drawn.tolist()))
        files = path, "--labels", labels, "--memory", memory
        printed = compared(capsys, tiny_bert, *files)
        recommended += "make_pipeline" in printed
        assert (
            f"on {len(texts)} texts is beyond chance: keep raw" in printed
            or "make_pipeline" in printed
        )
    assert recommended <= 2


def test_texts_that_share_most_of_their_words_are_one_piece_of_evidence(
    tiny_bert, tmp_path, words, capsys
):
    templates = [" ".join(words[i : i + 8]) for i in range(0, 40, 8)]
    texts = [f"{template} {i}" for template in templates for i in range(40)]
    path, labels = tmp_path / "texts", tmp_path / "labels"
    path.write_text("\n".join(texts))
    labels.write_text("\n".join(str(i % 2) for i in range(200)))
    printed = compared(capsys, tiny_bert, path, "--labels", labels)
    assert "keep raw vectors" in printed
    assert "-100.0 to +100.0" in printed  # five templates are too few for an interval


def test_no_row_is_the_double_of_another():
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(200, 9)), np.arange(200) % 4
    folds, kept = by_labels(X, codes)
    steps = {"raw": [PCA(9)], "turned": [PCA(9)], "cut": [PCA(4)]}
    rows = compared_rows(folds, steps, np.arange(len(kept)))
    assert [row.name for row in rows] == ["raw", "cut"]


def test_a_file_that_is_missing_is_named_before_torch_is_imported():
    code = (
        "import sys; from skcalib.__main__ import main; "
        "assert main(['compare', 'minilm', 'nowhere.csv']) == 2; print('torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "No such file or directory: 'nowhere.csv'" in ran.stderr
    assert ran.stdout == "False\n"
