"""Files of texts that the commands read."""

import json

import pytest

from skcalib.cli.options import texts_in, with_groups

TEXTS = ['He said "no", twice', "a, b", "two\nlines", "größer"]


@pytest.fixture(params=["csv", "tsv", "jsonl", "parquet"])
def table(request, tmp_path):
    """A table of texts and labels, with a row that has no text."""
    path = tmp_path / f"texts.{request.param}"
    rows = [{"label": str(i), "text": text} for i, text in enumerate([*TEXTS, ""])]
    if request.param == "jsonl":
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return str(path)
    frame = pytest.importorskip("pandas").DataFrame(rows)
    if request.param == "parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)
    else:
        separator = "," if request.param == "csv" else "\t"
        frame.to_csv(path, index=False, sep=separator, encoding="utf-8-sig")
    return str(path)


def test_texts_in_reads_a_column_of_a_table(table, tmp_path):
    assert texts_in(table, "text") == TEXTS
    labels = tmp_path / "labels.txt"
    labels.write_text("a\nb\nc\nd\n\n")
    assert with_groups(table, str(labels), column="text") == (TEXTS, list("abcd"))


def test_texts_in_refuses_a_table_without_a_column(table):
    with pytest.raises(ValueError, match=r"is a table\. Set --column .*, one of label, text;"):
        texts_in(table)
    with pytest.raises(ValueError, match=r"has no column 'title'\. Choose from label, text"):
        texts_in(table, "title")


def test_texts_in_names_a_line_that_is_no_object(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "a"}\n{"text"\n')
    with pytest.raises(ValueError, match="line 2 is not JSON"):
        texts_in(str(path), "text")
    path.write_text('["a"]\n')
    with pytest.raises(ValueError, match="line 1 has a list; expected an object"):
        texts_in(str(path), "text")


def test_texts_in_reads_lines_of_other_files(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("a, b\n\n c \n")
    assert texts_in(str(path)) == ["a, b", "c"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text\nhello, world\n", "line 2: 2 fields, where the header has 1. Put a field"),
        ("id,text\n1,a\n2\n", "line 3: 1 fields, where the header has 2"),
        ("text,text\na,b\n", "two columns of one name"),
        ('text\n"abc\n', "line 2: unexpected end of data"),
        ('text\n"no" she said\n', "line 2: ',' expected after"),
        ("text\n", "has no rows"),
        ("text\na\0b\n", "line 2 is not UTF-8, or has a NUL"),
        ("text\ngr\xf6\n".encode("latin1"), "line 2 is not UTF-8"),
    ],
)
def test_texts_in_refuses_a_broken_table(tmp_path, content, message):
    path = tmp_path / "texts.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        texts_in(str(path), "text")


def test_texts_in_names_a_file_that_is_no_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "texts.parquet"
    path.write_bytes(b"text\nhello\n" * 10)
    with pytest.raises(ValueError, match=r"texts\.parquet cannot be read as Parquet: .*magic"):
        texts_in(str(path), "text")


def test_texts_in_reads_a_field_of_any_length(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text(f"text\n{'long ' * 50_000}\n")
    assert texts_in(str(path), "text") == [("long " * 50_000).strip()]


@pytest.mark.parametrize("entry", ["5", "0", "false", "NaN", '["a"]', '{"a": 1}'])
def test_texts_in_refuses_what_is_no_text(tmp_path, entry):
    path = tmp_path / "texts.jsonl"
    path.write_text(f'{{"text": "a"}}\n{{"text": null}}\n{{"text": {entry}}}\n')
    with pytest.raises(ValueError, match="in row 3 of the column 'text'; it expects texts"):
        texts_in(str(path), "text")
