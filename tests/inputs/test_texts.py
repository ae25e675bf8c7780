"""Texts come out of every container alike, and a bad entry is named with its remedy."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.impute import SimpleImputer
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


def test_the_list_that_came_stays_as_it_was():
    came = list(np.array(TEXTS))
    assert as_texts(came) == TEXTS
    assert {type(text) for text in came} == {np.str_}


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


@pytest.mark.parametrize("X", [[("a", "b")], np.array("a"), np.full((2, 1, 1), "a")])
def test_other_than_one_column_is_no_texts(X):
    match = rf"shape {re.escape(str(np.shape(X)))}; expected one text per row.*Select one te"
    with pytest.raises(ValueError, match=match):
        as_texts(X)


@readers
@pytest.mark.parametrize("make", [np.float32, int, np.ndarray.tolist, list, pd.DataFrame])
def test_vectors_are_no_texts(read, make):
    X = np.arange(12.0).reshape(3, 4)
    X = X.astype(make) if make in (np.float32, int) else make(X)
    message = r"numbers, of shape \(3, 4\); .* leave out the encoder\. Where .* a TextEncoder"
    with pytest.raises(ValueError, match=message):
        read(X)


@pytest.mark.parametrize(
    ("X", "shape"),
    [
        (["ab", "cd"], r"\(2,\)"),  # strings are no pairs of their letters
        ([["a"], ["b"]], r"\(2, 1\)"),
        ([["a", "b", "c"]], r"\(1, 3\)"),
        ([[], []], r"\(2, 0\)"),
        ([["a", "b"], ["c"]], r"\(2,\)"),
        ([["a", "b"], "cd"], r"\(2,\)"),
        (np.full((2, 1, 1), "a"), r"\(2, 1, 1\)"),
    ],
)
def test_other_than_two_columns_are_no_pairs(X, shape):
    match = rf"X has shape {shape}(, whose row . is .*)?; .* \(n_pairs, 2\): a list"
    with pytest.raises(ValueError, match=match):
        as_pairs(X)


BAD_ENTRIES = {
    "None": (None, ValueError, r"a missing value \(None\)", "empty string"),
    "nan": (float("nan"), ValueError, r"a missing value \(nan\)", "Drop the row"),
    "pandas.NA": (pd.NA, ValueError, r"a missing value \(<NA>\)", "Drop the row"),
    "int": (7, TypeError, "7 of type int", r"column of texts, or .*str\(\.\.\.\)"),
    "numpy.int64": (np.int64(7), TypeError, ".*7.* of type int64", "column of texts"),
    "bytes": (b"xyz", TypeError, "b'xyz' of type bytes", r"decode\('utf-8'\)"),
    "list": (["x", "y"], TypeError, r"\['x', 'y'\] of type list", r"' '\.join\(entry\)"),
    "object": (object(), TypeError, "<object object", r"str\(\.\.\.\)"),
}
bad_entries = pytest.mark.parametrize(
    ("entry", "exception", "what", "remedy"), BAD_ENTRIES.values(), ids=BAD_ENTRIES
)


@bad_entries
@pytest.mark.parametrize(
    "container",
    [
        list,
        lambda entries: _objects(entries),
        lambda entries: [[entry] for entry in entries],
        lambda entries: pd.Series(_objects(entries)[:, 0], index=[9, 8, 7, 6], dtype=object),
    ],
    ids=["list", "column", "nested", "Series"],
)
def test_the_first_bad_entry_is_named_by_position(container, entry, exception, what, remedy):
    X = container(["a", "", entry, 5])
    match = rf"X has {what}.* at position 2; expected str\. .*{remedy}"
    with pytest.raises(exception, match=match):
        as_texts(X)


@bad_entries
@pytest.mark.parametrize("column", [0, 1])
def test_the_first_bad_entry_of_pairs_is_named_by_column(
    column, entry, exception, what, remedy
):
    rows = [["a", "b"], ["c", "d"], ["e", "f"]]
    rows[1][column] = entry
    match = rf"X has {what}.* at position 1, column {column}; .*{remedy}"
    with pytest.raises(exception, match=match):
        as_pairs(rows)


@pytest.mark.parametrize(
    "X", [pd.Series(["a", None], dtype="category"), pl.Series(["a", None])]
)
def test_a_missing_value_of_a_series_is_named(X):
    with pytest.raises(ValueError, match=r"a missing value .* at position 1; .*Drop the row"):
        as_texts(X)


@pytest.mark.parametrize("X", [np.array([[1.0, 2.0]]).T, np.arange(2), pd.Series([1, 2])])
def test_a_column_of_numbers_is_refused_at_its_first_entry(X):
    with pytest.raises(TypeError, match=r"at position 0; .*Select a column of texts"):
        as_texts(X)


@pytest.mark.parametrize("read", [as_texts, as_pairs])
def test_a_long_entry_does_not_flood_the_message(read):
    with pytest.raises((TypeError, ValueError), match="xxx") as caught:
        read([b"x" * 10_000])
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([["a", "b", "c"]], r"shape \(1, 3\); expected pairs"),
        (np.empty((3, 1), dtype=object), r"\(None\) at position 0; expected str"),
    ],
)
def test_what_has_rows_of_several_columns_counts_as_pairs(X, message):
    with pytest.raises(ValueError, match=message):
        fitted_on(X)
    assert {"ab", "cd"} <= fitted_on(["ab", "cd"])  # texts of two letters each


def test_columns_of_pyarrow_are_taken():
    pa = pytest.importorskip("pyarrow")
    texts = ["ab", "cd", "e"]
    kinds = pa.string(), pa.large_string(), pa.string_view()
    for kind in (*kinds, pa.dictionary(pa.int32(), pa.string())):
        chunks = pa.chunked_array([pa.array(texts[:1], kind), pa.array(texts[1:], kind)])
        assert as_texts(chunks) == as_texts(pa.array(texts, kind)) == texts
        with pytest.raises(ValueError, match=r"missing value \(None\) at position 1"):
            as_texts(pa.array(["a", None], kind))


@pytest.mark.parametrize("dtype", ["U1", object])
def test_a_masked_text_is_missing(dtype):
    texts = np.ma.masked_array(np.array(["a", "b", "c"], dtype), mask=[False, True, False])
    with pytest.raises(ValueError, match=r"missing value \(None\) at position 1"):
        as_texts(texts)


@pytest.mark.parametrize("dtype", [None, "object", "string"])
def test_the_remedy_that_the_error_of_a_missing_text_names_works(dtype):
    X = _objects(["a", None, np.nan, pd.NA])
    X = X if dtype is None else pd.DataFrame(X, dtype=dtype)
    remedy = "missing_values=pandas.NA, strategy='constant', fill_value=''"
    with pytest.raises(ValueError, match=rf"position 1;.*SimpleImputer\({remedy}\)"):
        as_texts(X)
    imputer = SimpleImputer(missing_values=pd.NA, strategy="constant", fill_value="")
    assert as_texts(imputer.fit_transform(X)) == ["a", "", "", ""]


def test_the_remedy_for_missing_texts_in_a_list_works():
    X = ["a", None, np.nan]
    with pytest.raises(ValueError, match=r"position 1; .* a list becomes") as caught:
        as_texts(X)
    remedy = str(caught.value).partition("a list becomes ")[2].rstrip(".")
    assert as_texts(eval(remedy, {"X": X})) == ["a", "", ""]
