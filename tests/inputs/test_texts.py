"""Texts come out of every container alike, and a bad entry is named with its remedy."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.pipeline import make_pipeline

from skcalib import BiEncoder, TextEncoder, Whitening

TEXTS = ["The dog runs.", "", "a", "Ein größerer Satz, 中文 🙂\n", "a", " spaces  kept "]
OTHERS = ["b", "The dog runs.", "", "x", "Wörter", "y"]
INDEX = [7, 3, 3, 11, 0, -1]


def _objects(*columns):
    cells = np.empty((len(columns[0]), len(columns)), dtype=object)
    for j, column in enumerate(columns):
        cells[:, j] = column
    return cells


TEXT_CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "object array": lambda t: np.array(t, dtype=object),
    "str array": np.array,
    "list of numpy.str_": lambda t: list(np.array(t)),
    "object column": lambda t: _objects(t),
    "nested lists": lambda t: [[text] for text in t],
    "list of arrays": lambda t: [np.array([text]) for text in t],
    "pandas Series, object": lambda t: pd.Series(t, index=INDEX, dtype=object),
    "pandas Series, string": lambda t: pd.Series(t, index=INDEX, dtype="string"),
    "pandas Series, category": lambda t: pd.Series(t, index=INDEX, dtype="category"),
    "pandas Index": pd.Index,
    "pandas frame": lambda t: pd.DataFrame({"text": t}, index=INDEX),
    "polars Series": pl.Series,
    "polars Series, categorical": lambda t: pl.Series(t, dtype=pl.Categorical),
    "polars frame": lambda t: pl.DataFrame({"text": t}),
}
PAIR_CONTAINERS = {
    "list of tuples": lambda a, b: list(zip(a, b, strict=True)),
    "tuple of lists": lambda a, b: tuple([x, y] for x, y in zip(a, b, strict=True)),
    "list of str arrays": lambda a, b: [np.array(pair) for pair in zip(a, b, strict=True)],
    "object array": _objects,
    "str array": lambda a, b: np.array([a, b]).T,
    "pandas frame": lambda a, b: pd.DataFrame({"s": a, "t": b}, index=INDEX),
    "polars frame": lambda a, b: pl.DataFrame({"s": a, "t": b}),
}
TEXT_CONTAINERS["StringDType array"] = lambda t: np.array(t, dtype=np.dtypes.StringDType())
text_containers = pytest.mark.parametrize(
    "container", TEXT_CONTAINERS.values(), ids=TEXT_CONTAINERS
)
pair_containers = pytest.mark.parametrize(
    "container", PAIR_CONTAINERS.values(), ids=PAIR_CONTAINERS
)


class Numbered:
    """A model whose vector of a text is a number of its own, an angle in degrees."""

    def __init__(self):
        self.texts = []

    def __call__(self, texts):
        assert {type(text) for text in texts} == {str}
        self.texts += [text for text in texts if text not in self.texts]
        angles = np.deg2rad([self.texts.index(text) for text in texts])
        return np.column_stack([np.cos(angles), np.sin(angles)])

    def read(self, vectors):
        degrees = np.rad2deg(np.arctan2(vectors[:, 1], vectors[:, 0]))
        return [self.texts[i] for i in degrees.round().astype(int)]


def as_texts(X):
    """Texts of which an encoder returns the vectors."""
    model = Numbered()
    return model.read(TextEncoder(model).fit(["a"]).transform(X))


def as_pairs(X):
    """Cosines of pairs."""
    return BiEncoder(TextEncoder(Numbered())).fit(TEXTS + OTHERS).predict(X)


def fitted_on(X):
    """Texts that a model has seen in a fit."""
    model = Numbered()
    BiEncoder(make_pipeline(TextEncoder(model), Whitening(noise=1.0))).fit(X)
    return {*model.texts}


@text_containers
def test_every_container_of_texts_gives_the_same_list(container):
    assert as_texts(container(TEXTS)) == TEXTS
    assert fitted_on(container(TEXTS)) >= {*TEXTS}


@pytest.mark.filterwarnings("ignore:.*have no content for the encoder")
@pair_containers
def test_every_container_of_pairs_gives_the_same_two_lists(container):
    X = container(TEXTS, OTHERS)
    np.testing.assert_array_equal(as_pairs(X), as_pairs([*zip(TEXTS, OTHERS, strict=True)]))
    assert len({*as_pairs(X).round(9)}) > 3
    assert fitted_on(X) >= {*TEXTS, *OTHERS}


readers = pytest.mark.parametrize("read", [as_texts, as_pairs, fitted_on])


@readers
@pytest.mark.parametrize(
    "X", ["a text", b"a text", {"a": "b"}, {"a", "b"}, None, 3.5, pl.LazyFrame({"s": ["a"]})]
)
def test_what_holds_no_texts_is_refused_by_its_kind(read, X):
    expected = r"expected a list of str.*Wrap a single text in a list, and convert"
    with pytest.raises(TypeError, match=f"X is of type {type(X).__name__}; {expected}"):
        read(X)


@readers
@pytest.mark.parametrize(
    "X",
    [
        *([], np.empty(0, dtype=object), np.empty((0, 1), dtype=object)),
        *(pd.Series([], dtype="string"), pl.Series([], dtype=pl.String)),
    ],
)
def test_an_empty_container_is_refused(read, X):
    with pytest.raises(ValueError, match="X has no texts; expected at least one"):
        read(X)


@readers
@pytest.mark.parametrize("iterate", [iter, reversed, enumerate])
def test_an_iterator_is_refused_unread(read, iterate):
    texts = iterate(["a", "b"])
    kind = type(texts).__name__
    with pytest.raises(TypeError, match=rf"X is of type {kind}; .*an iterator with list"):
        read(texts)
    assert len(list(texts)) == 2


@pytest.mark.parametrize(
    "X",
    [
        *([("a", "b")], np.array("a"), np.full((2, 1, 1), "a")),
        *(np.ones((3, 4)), np.ones((3, 4)).tolist(), pd.DataFrame(np.ones((3, 4)))),
    ],
)
def test_other_than_one_column_is_no_texts(X):
    match = rf"shape {re.escape(str(np.shape(X)))}; expected one text per row.*Select one"
    with pytest.raises(ValueError, match=f"{match}.*leave out the encoder"):
        as_texts(X)


@pytest.mark.parametrize(
    ("X", "shape"),
    [
        (["ab", "cd"], r"\(2,\)"),  # strings are no pairs of their letters
        ([["a"], ["b"]], r"\(2, 1\)"),
        ([["a", "b", "c"]], r"\(1, 3\)"),
        (np.full((2, 1, 1), "a"), r"\(2, 1, 1\)"),
    ],
)
def test_other_than_two_columns_are_no_pairs(X, shape):
    with pytest.raises(ValueError, match=rf"X has shape {shape}; .* \(n_pairs, 2\): a list"):
        as_pairs(X)


BAD_ENTRIES = {
    "None": (None, ValueError, r"a missing value \(None\)"),
    "nan": (float("nan"), ValueError, r"a missing value \(nan\)"),
    "pandas.NA": (pd.NA, ValueError, r"a missing value \(<NA>\)"),
    "int": (7, TypeError, "7 of type int"),
    "bytes": (b"xyz", TypeError, "b'xyz' of type bytes"),
    "long bytes": (b"x" * 10_000, TypeError, r"b'x{58} of type bytes"),
    "list": (["x", "y"], TypeError, r"\['x', 'y'\] of type list"),
}
bad_entries = pytest.mark.parametrize(
    ("entry", "exception", "what"), BAD_ENTRIES.values(), ids=BAD_ENTRIES
)


@bad_entries
@pytest.mark.parametrize(
    "container",
    [
        list,
        lambda entries: _objects(entries),
        lambda entries: pd.Series(_objects(entries)[:, 0], index=[9, 8, 7, 6], dtype=object),
    ],
    ids=["list", "column", "Series"],
)
def test_the_first_bad_entry_is_named_by_position(container, entry, exception, what):
    X = container(["a", "", entry, 5])
    with pytest.raises(exception, match=rf"X has {what}.* at position 2; expected str\. "):
        as_texts(X)


@bad_entries
@pytest.mark.parametrize("column", [0, 1])
def test_the_first_bad_entry_of_pairs_is_named_by_column(column, entry, exception, what):
    rows = [["a", "b"], ["c", "d"], ["e", "f"]]
    rows[1][column] = entry
    with pytest.raises(exception, match=rf"X has {what}.* at position 1, column {column}; "):
        as_pairs(rows)


@pytest.mark.parametrize("X", [np.arange(2), np.array([[1.0, 2.0]]).T, pd.Series([1, 2])])
def test_a_column_of_numbers_is_refused_at_its_first_entry(X):
    with pytest.raises(TypeError, match=r"at position 0; .*select a column of texts"):
        as_texts(X)


def test_what_has_rows_of_several_columns_counts_as_pairs():
    with pytest.raises(ValueError, match=r"shape \(1, 3\); expected pairs"):
        fitted_on([["a", "b", "c"]])
    assert {"ab", "cd"} <= fitted_on(["ab", "cd"])  # texts of two letters each


def test_columns_of_pyarrow_are_taken():
    pa = pytest.importorskip("pyarrow")
    assert as_texts(pa.array(["ab", "cd"])) == ["ab", "cd"]
    with pytest.raises(ValueError, match=r"missing value \(None\) .*at position 1"):
        as_texts(pa.chunked_array([["a", None]]))


def test_the_remedy_that_the_error_of_a_missing_text_names_works():
    X = ["a", None, np.nan]
    with pytest.raises(ValueError, match=r"position 1; .* for instance with") as caught:
        as_texts(X)
    remedy = str(caught.value).partition("for instance with ")[2].rstrip(".")
    assert as_texts(eval(remedy, {"X": X})) == ["a", "", ""]
