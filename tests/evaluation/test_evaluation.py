"""evaluate_sts: the papers' tables, and its command line."""

import csv
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import spearmanr
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, BiEncoder, Whitening
from skcalib.__main__ import main
from skcalib.datasets import fetch_sts, load_toy_sts
from skcalib.evaluation import ScoreTable, evaluate_labeled, evaluate_sts
from skcalib.metrics import aggregate

# The tiny BERT knows fifty words.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*unknown to this model", "ignore:.*have no content for the encoder"
)


class Waves(TransformerMixin, BaseEstimator):
    """Vectors of a text without a model; remembers in a list what it was fitted on."""

    def __init__(self, seen=None):
        self.seen = seen

    def __sklearn_clone__(self):
        return type(self)(self.seen)  # the same list

    def fit(self, X, y=None):
        if self.seen is not None:
            self.seen.append(list(X))
        self.fitted_ = True
        return self

    def transform(self, X):
        # Depends on every character and its place: no ties but between equal texts.
        codes = [np.array([ord(c) for c in text])[:, None] for text in X]
        frequencies = np.sqrt(np.arange(2, 9))
        return np.array([np.sin(c * frequencies + np.arange(7)).mean(axis=0) for c in codes])


@pytest.fixture(scope="module")
def data_home(tmp_path_factory):
    """Folder with three small benchmarks, parts of the toy set; sts12 has two subsets."""
    folder = tmp_path_factory.mktemp("sts")
    toy = load_toy_sts()
    rows = [
        {"sentence1": a, "sentence2": b, "score": grade, "subset": subset}
        for (a, b), grade, subset in zip(toy.data, toy.target, toy.subset, strict=True)
    ]
    parts = {"stsb-train": rows[:50], "stsb-test": rows[180:240], "sts12-test": rows[50:150]}
    for name, part in parts.items():
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, fieldnames=list(part[0]))
            writer.writeheader()
            writer.writerows(part)
    return folder


def by_hand(encoder, fit_texts, sts):
    """Spearman's rho of cosines by scipy, times 100."""
    a, b = (encoder.fit(fit_texts).transform(column) for column in sts.data.T)
    cosines = np.sum(a * b, axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return 100 * spearmanr(sts.target, cosines).statistic


@pytest.mark.parametrize("fit_on", ["target", "train", "texts"])
def test_scores_are_those_computed_by_hand(data_home, fit_on):
    encoder = make_pipeline(Waves(), Whitening(shrinkage=0.1))
    others = ["an abode", "a cube", "a duo", "some idea", "beau"]
    given = others if fit_on == "texts" else fit_on
    table = evaluate_sts(encoder, ["stsb", "sts12"], fit_on=given, data_home=data_home)
    expected = []
    for task in ("stsb", "sts12"):
        sts = fetch_sts(task, data_home=data_home)
        train = fetch_sts("stsb", "train", data_home=data_home).data.ravel()
        texts = {"target": sts.data.ravel(), "train": train, "texts": others}[fit_on]
        expected.append(by_hand(encoder, list(dict.fromkeys(texts)), sts))
    # In points. Rounding ranks the cosines of pairs of equal texts, which are all 1.
    assert_allclose(table.scores, [[*expected, np.mean(expected)]], atol=0.02)
    assert (table.rows, table.columns) == (("Pipeline",), ("stsb", "sts12", "average"))


def test_target_fits_on_each_benchmark_and_the_others_once(data_home):
    seen = []
    evaluate_sts(Waves(seen), ["stsb", "sts12"], data_home=data_home)
    evaluate_sts(Waves(seen), ["stsb", "sts12"], fit_on="train", data_home=data_home)
    parts = (("stsb", "test"), ("sts12", "test"), ("stsb", "train"))
    own = [fetch_sts(*part, data_home=data_home).data.ravel() for part in parts]
    assert [sorted(texts) for texts in seen] == [sorted(set(texts)) for texts in own]


@pytest.mark.parametrize("how", ["all", "mean", "wmean"])
def test_aggregation_is_of_the_subsets(data_home, how):
    sts = fetch_sts("sts12", data_home=data_home)
    assert len(set(sts.subset)) > 1
    predicted = BiEncoder(Waves()).fit(sts.data).predict(sts.data)
    table = evaluate_sts(Waves(), "sts12", aggregate=how, data_home=data_home)
    expected = 100 * aggregate(sts.target, predicted, sts.subset, how)
    assert table.scores[0, 0] == pytest.approx(expected, rel=1e-9)


def test_rows_are_the_encoders_by_name_and_stay_unfitted(data_home):
    named = {"one": Waves(), "two": make_pipeline(Waves(), Whitening(2))}
    table = evaluate_sts(named, "stsb", data_home=data_home)
    assert table.rows == ("one", "two")
    alone = evaluate_sts(named["two"], "stsb", data_home=data_home)
    assert_array_equal(table.scores[1:], alone.scores)
    assert not hasattr(named["one"], "fitted_")


def test_progress_is_silent_unless_asked(data_home, capsys):
    evaluate_sts(Waves(), "stsb", data_home=data_home)
    assert capsys.readouterr() == ("", "")
    evaluate_sts(Waves(), ["stsb", "sts12"], data_home=data_home, verbose=True)
    assert "2/2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"tasks": "sts17"}, ValueError, "task='sts17' is unknown. Use one of stsb"),
        ({"fit_on": "dev"}, ValueError, "'target', 'train' or a list of texts"),
        ({"fit_on": [1, 2]}, TypeError, "fit_on has 1 of type int"),
        ({"aggregate": "median"}, ValueError, "'all', 'mean' or 'wmean'"),
        ({"encoder": {}}, ValueError, "at least one"),
        ({"encoder": 3}, TypeError, "encoder is of type int; expected the folder"),
        ({"encoder": {"a": BertEncoder}}, TypeError, "is a class, not an instance"),
        (
            {"encoder": BiEncoder(Waves())},
            TypeError,
            "is of type BiEncoder; expected",
        ),
    ],
)
def test_errors_say_what_is_expected(arguments, error, message):
    defaults = {"encoder": Waves(), "tasks": "toy"}
    with pytest.raises(error, match=re.escape(message)):
        evaluate_sts(**(defaults | arguments))


def test_a_benchmark_that_is_missing_shows_before_anything_is_fitted(data_home):
    seen = []
    with pytest.raises(FileNotFoundError, match=r"sts13-test\.csv"):
        evaluate_sts(Waves(seen), ["stsb", "sts13"], data_home=data_home)
    for wrong in ({"aggregate": "median"}, {"tasks": []}):
        with pytest.raises(ValueError, match=r"evaluate_sts got .*one benchmark or more"):
            evaluate_sts(Waves(seen), **{"tasks": "stsb", "data_home": data_home} | wrong)
    assert seen == []


@pytest.mark.parametrize("aggregate", ["mean", "wmean"])
def test_subsets_that_the_source_does_not_name_are_not_aggregated(aggregate, tmp_path):
    rows = "a man,a dog,1\nthe snow,a song,2\na cat,the cat,5\n"
    for task in ("sts13", "sickr"):
        (tmp_path / f"{task}-test.csv").write_text(f"sentence1,sentence2,score\n{rows}")
    with pytest.raises(ValueError, match="needs the subsets of sts13"):
        evaluate_sts(Waves(), "sts13", aggregate=aggregate, data_home=tmp_path)
    evaluate_sts(Waves(), "sickr", aggregate=aggregate, data_home=tmp_path)  # has none


TABLE = ScoreTable(("raw", "a <b>"), ("stsb", "average"), np.array([[1.25, 2], [-3, 4.06]]))


def test_table_is_aligned_markdown():
    lines = str(TABLE).splitlines()
    assert len(lines) == 4
    assert len({len(line) for line in lines}) == 1
    assert [cell.strip() for cell in lines[3].strip("|").split("|")] == ["a <b>", "-3.0", "4.1"]
    assert TABLE._repr_markdown_() == str(TABLE)  # which a notebook renders


def test_command_line_makes_the_table_and_the_file(data_home, tiny_bert, tmp_path, capsys):
    sentences = tmp_path / "sentences.txt"
    sentences.write_text("a man plays\n\nthe snow at night\nan old horse runs\n")
    output = tmp_path / "results.csv"
    command = f"--model {tiny_bert} --tasks stsb,sts12 --pooling mean,cls --layers=-1,1+2"
    options = f"--data-home {data_home} --memory {tmp_path} --output {output}"
    calibrators = "--calibrators raw,whitening --n-components 2 --noise 0 --shrinkage 0.5"
    arguments = f"evaluate {command} {options} {calibrators} --fit-on {sentences}"
    assert main(arguments.split()) == 0
    with output.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 8
    assert len(capsys.readouterr().out.splitlines()) == 10
    settings = {"pooling": "mean", "layers": "1+2", "fit_on": str(sentences)}
    settings["calibrator"] = str(Whitening(2, shrinkage=0.5))
    assert rows[3].items() >= settings.items()
    # The same store: cosines in two dimensions are so close that a last bit reorders them.
    encoder = BertEncoder(tiny_bert, layers=(1, 2), memory=tmp_path)
    pipeline = make_pipeline(encoder, Whitening(2, shrinkage=0.5))
    texts = ["a man plays", "the snow at night", "an old horse runs"]
    table = evaluate_sts(pipeline, ["stsb", "sts12"], fit_on=texts, data_home=data_home)
    found = [float(rows[3][column]) for column in table.columns]
    assert_allclose([found], table.scores, atol=0.0051)


def test_command_line_keeps_no_vectors_unless_asked(tiny_bert, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    command = f"evaluate --model {tiny_bert} --tasks toy --layers 0,1"
    assert main(command.split()) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 2 + 2 * 2  # raw and whitening are the default
    assert "mean 0 Whitening(noise='auto')" in printed.out
    assert printed.err == ""  # no bar where nobody watches
    assert list(tmp_path.iterdir()) == []


def test_options_of_whitenings_give_a_row_each(tiny_bert, tmp_path, capsys):
    command = f"evaluate --model {tiny_bert} --tasks toy --output {tmp_path / 'rows.csv'}"
    options = "--calibrators raw,whitening --n-components all,4 --noise 1,auto --smoothing"
    assert main([*command.split(), *options.split()]) == 0
    with (tmp_path / "rows.csv").open(newline="") as stream:
        found = [row["calibrator"] for row in csv.DictReader(stream)]
    whitenings = [Whitening(k, noise=noise) for k in (None, 4) for noise in (1.0, "auto")]
    names = ["raw", *map(str, whitenings)]
    assert found == [*names, *(f"{name}, smoothed" for name in names)]
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(found)


@pytest.mark.parametrize("option", ["--noise high", "--shrinkage 1.2.3", "--n-components few"])
def test_options_of_whitenings_are_checked(option, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["evaluate", *option.split()])
    assert f"argument {option.split()[0]}: invalid" in capsys.readouterr().err


def test_evaluation_refuses_unwritable_output_before_encoding(
    tiny_bert, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(BertEncoder, "fit", lambda *_: pytest.fail("encoded"))
    command = ["evaluate", "--model", tiny_bert, "--tasks", "toy", "--output"]
    for output in (tmp_path / "nowhere" / "rows.csv", tmp_path):
        assert main([*command, str(output)]) == 2
        assert str(output) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--fit-on nowhere.txt", "No such file or directory: 'nowhere.txt'"),
        ("--calibrators zca", "--calibrators has 'zca'; expected"),
        ("--tasks sts99", "task='sts99' is unknown. Use one of stsb, "),
        ("--layers 9", "hidden state 9"),
        ("--model no/where", "neither a local folder"),
    ],
)
def test_command_line_ends_with_the_message(tiny_bert, options, message, capsys):
    assert main(["evaluate", "--model", tiny_bert, "--tasks", "toy", *options.split()]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("ein Satz\nnoch einer, größer\n".encode("latin-1"), r"s\.txt, line 2 is not UTF"),
        ("ein Satz\n".encode("utf-16"), "line 1 is not UTF-8.*iconv"),
        ("größer".encode("utf-16-le"), "line 1 is not UTF-8"),
        ("見出し".encode("utf-16"), "line 1 is not UTF-8"),
        (b"one\ntw\0o\n", "line 2 is not UTF-8"),
        (b"\n  \n", r"sentences\.txt' has no text; give a file with one"),
    ],
    ids=["latin-1", "utf-16", "without mark", "without NUL", "NUL", "blank"],
)
def test_a_file_without_texts_is_named(content, message, tmp_path, capsys):
    file = tmp_path / "sentences.txt"
    file.write_bytes(content)
    assert main(["evaluate", "--tasks", "toy", "--fit-on", str(file)]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert main(["evaluate", "--tasks", "toy", "--fit-on", str(tmp_path)]) == 2
    assert "is a folder; give a file" in capsys.readouterr().err


def test_command_replaces_a_file_by_force_only(tmp_path, capsys, tiny_bert):
    texts, command = tmp_path / "texts", ["evaluate", "--tasks", "toy", "-q"]
    texts.write_text("the dog\na cat\n")
    command += ["--model", str(tiny_bert), "--calibrators", "raw", "--fit-on", str(texts)]
    assert main([*command, "--output", str(texts)]) == 2
    assert f"{str(texts)!r} exists. Choose another, or use --force" in capsys.readouterr().err
    assert main([*command, "--output", str(texts), "--force"]) == 0  # which it also reads
    assert texts.read_text().startswith("model,pooling")
    assert (tmp_path / "texts~").read_text() == "the dog\na cat\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--split", "dev"], "--split needs --retrieval"),
        (["--query-prompt", "q"], "--query-prompt needs --retrieval"),
        (["--layers", "1,77"], "77"),
        (["--noise", "nan"], "'noise' parameter of Whitening"),
        (["--noise", "auto,-1"], "'noise' parameter of Whitening"),
        (["--n-components", "4,0"], "'n_components' parameter of Whitening"),
        (["--n-components", "4,99"], "--n-components 99 exceeds the 16 dimensions"),
        (["--n-components", "17", "--smoothing"], "--n-components 17 exceeds the 16"),
    ],
)
def test_command_refuses_before_the_first_row(options, message, tiny_bert, tmp_path, capsys):
    output = tmp_path / "scores.csv"
    command = ["evaluate", "--tasks", "toy", "--model", str(tiny_bert), "--output", str(output)]
    assert main([*command, *options]) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


def test_every_evaluation_keeps_the_fit_of_a_fitted_encoder(data_home):
    """As calibrate returns it; another one is cloned and fitted on the scored texts."""
    texts = fetch_sts("stsb", "train", data_home=data_home).data.ravel()[:40]
    fitted = make_pipeline(Waves(), Whitening(2)).fit([f"fitted on {i}" for i in range(40)])
    frozen, fresh = FrozenEstimator(fitted), clone(fitted)

    def of_sts(encoder):
        return evaluate_sts(encoder, "stsb", data_home=data_home).scores

    def of_labels(encoder):
        return evaluate_labeled(encoder, texts, np.arange(len(texts)) % 2).scores

    for scores in of_sts, of_labels:
        assert_array_equal(scores(fitted), scores(frozen))
        assert not np.array_equal(scores(fitted), scores(fresh))


def test_command_line_says_how_to_give_a_list_that_begins_with_a_minus(capsys):
    with pytest.raises(SystemExit):
        main(["evaluate", "--layers", "-1,first_last"])
    assert "as in --layers=-1" in capsys.readouterr().err
