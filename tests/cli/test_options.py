"""Files of texts and labels that the command reads."""

import gzip
import io
import json

import pytest

from skcalib.cli.options import with_labels

TEXTS = ['He said "no", twice', "a, b", "two\nlines", "größer", "a; b"]
ROWS = [{"label": str(i), "text": text} for i, text in enumerate([*TEXTS, ""])]
SEPARATORS = {"csv": ",", "tsv": "\t", "tab": "\t", "semicolons.csv": ";"}
KINDS = [*SEPARATORS, "json", "lines.json", "jsonl", "parquet"]


@pytest.fixture(params=KINDS)
def table(request, tmp_path):
    """A table of texts and labels, with a row that has no text."""
    kind, path = request.param, tmp_path / f"texts.{request.param}"
    frame = pytest.importorskip("pandas").DataFrame(ROWS)
    if kind == "parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)
    elif kind in SEPARATORS:
        path.write_text("\ufeff" + frame.to_csv(index=False, sep=SEPARATORS[kind]), "utf-8")
    elif kind == "json":
        path.write_text(json.dumps(ROWS, indent=2))
    else:
        path.write_text("\n".join(map(json.dumps, ROWS)))
    return str(path)


def texts_in(path, column=None):
    return [*with_labels(str(path), column)]


def test_texts_and_labels_are_columns_of_a_table(table):
    assert texts_in(table, "text") == TEXTS
    expected = dict(zip(TEXTS, "01234", strict=True))
    assert with_labels(table, "text", "label") == expected
    with pytest.raises(ValueError, match=r"has no column 'topic'; its columns are .*'text'"):
        with_labels(table, "text", "topic")
    with pytest.raises(ValueError, match=r"is a table\. Set --column .*, one of label, text;"):
        texts_in(table)


def test_a_text_without_a_label_is_left_out_and_counts_once(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("text,group\na,1\nb,\na,2\n")
    assert with_labels(str(path), "text", "group") == {"a": "1"}


def test_labels_may_be_lines_of_a_file(tmp_path):
    texts, labels = tmp_path / "texts", tmp_path / "labels"
    texts.write_text("one\n\ntwo\nthree\n")
    labels.write_text("1\n2\n\n3\n")
    assert with_labels(str(texts), labels=str(labels)) == {"one": "1", "three": "3"}
    labels.write_text("1\n")
    with pytest.raises(ValueError, match=r"texts' has 4 lines, and .* has 1\. Give both"):
        with_labels(str(texts), labels=str(labels))


@pytest.mark.parametrize("ending", ["txt", "log", ""])
def test_lines_of_other_files_are_texts(tmp_path, ending):
    path = tmp_path / f"texts.{ending}"
    path.write_bytes("a, b\r\n\n c\u2028 d\n".encode())
    assert texts_in(path) == ["a, b", "c\u2028 d"]


@pytest.mark.parametrize(
    ("content", "column", "expected"),
    [
        ("a, b\n\n c \n", None, ["a, b", "c"]),
        ("id,text\n1,größer\n", "text", ["größer"]),
        ('{"text": "one"}\n{"text": "two"}\n', "text", ["one", "two"]),
    ],
)
def test_a_hyphen_is_standard_input(monkeypatch, content, column, expected):
    stdin = io.TextIOWrapper(io.BytesIO(content.encode()), encoding="ascii")
    monkeypatch.setattr("sys.stdin", stdin)
    assert texts_in("-", column) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text\nhello, world\n", "line 2: 2 cells, where the header has 1. Put ',' between"),
        ("id;text\n1;a\n\n2\n", "line 4: 1 cells, where the header has 2. Put ';' between"),
        ('text\n"abc\n', "line 2: unexpected end of data"),
        ('text\n"no" she said\n', "line 2: ',' expected after"),
        ("text\n", "has no rows"),
        ("\n", "has no rows"),
        ("text\n \n", "has no text"),
        ("text\na\0b\n", "line 2 is not UTF-8, or has a NUL"),
        ("text\ngr\xf6\n".encode("latin1"), "line 2 is not UTF-8.*iconv"),
        ("größer".encode("utf-16"), "line 1 is not UTF-8"),
        (gzip.compress(b"text\none\n", mtime=0), "line 1 is not UTF-8.*unpack it if it is"),
    ],
)
def test_a_broken_table_is_named_with_its_line(tmp_path, content, message):
    path = tmp_path / "texts.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=rf"texts\.csv'?,? ?{message}"):
        texts_in(path, "text")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a"}\n{"text"\n', "line 2 is not JSON"),
        ('["a"]\n', r"entry 1 has 'a' of type str; expected an object"),
        ('{"text": "a"}\n{"name": "b"}', "line 2 has no column 'text'; its columns are 'name'"),
    ],
)
def test_json_that_has_no_texts_is_named(tmp_path, content, message):
    path = tmp_path / "texts.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        texts_in(path, "text")


@pytest.mark.parametrize(
    "content",
    [
        *(f"id{s}text\n1{s}one\n2{s}two\n" for s in ",;\t|"),
        '[\n{"text": "one"}, {"text": "two"}]',
    ],
)
def test_a_table_of_another_ending_is_read_by_its_column(tmp_path, content):
    path = tmp_path / "texts.txt"
    path.write_text(content)
    assert texts_in(path, "text") == ["one", "two"]


def test_a_cell_may_have_any_length(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text(f"text\n{'long ' * 50_000}\n")
    assert texts_in(path, "text") == [("long " * 50_000).strip()]
