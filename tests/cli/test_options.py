"""Files of texts that the commands read."""

import gzip
import io
import json

import pytest

from skcalib.__main__ import main
from skcalib.cli.options import texts_in, with_labels

TEXTS = ['He said "no", twice', "a, b", "two\nlines", "größer", "a; b"]
ROWS = [{"label": str(i), "text": text} for i, text in enumerate([*TEXTS, ""])]
SEPARATORS = {"csv": ",", "tsv": "\t", "tab": "\t"}


def of_kind(kind, path):
    """Write a table of texts and labels, with a row that has no text."""
    ending = kind.removeprefix("semicolons.")
    if ending == "parquet":
        pytest.importorskip("pyarrow")
        pytest.importorskip("pandas").DataFrame(ROWS).to_parquet(path)
        return
    if ending in ("jsonl", "lines.json"):
        content = "\n".join(map(json.dumps, ROWS))
    elif ending == "json":
        content = json.dumps(ROWS, indent=2)
    else:
        separator = ";" if kind != ending else SEPARATORS[ending]
        frame = pytest.importorskip("pandas").DataFrame(ROWS)
        content = "\ufeff" + frame.to_csv(index=False, sep=separator)
    content = content.encode()
    path.write_bytes(content)


KINDS = ["csv", "tsv", "tab", "semicolons.csv", "json", "lines.json", "jsonl", "parquet"]


@pytest.fixture(params=KINDS)
def table(request, tmp_path):
    of_kind(request.param, tmp_path / f"texts.{request.param}")
    return str(tmp_path / f"texts.{request.param}")


def test_texts_in_reads_a_column_of_a_table(table, tmp_path):
    assert texts_in(table, "text") == TEXTS
    labels = tmp_path / "labels.txt"
    labels.write_text("a\nb\nc\nd\ne\n\n")
    assert with_labels(table, str(labels), column="text") == (TEXTS, list("abcde"))


def test_labels_are_a_column_of_the_table(table):
    assert with_labels(table, "label", column="text") == (TEXTS, list("01234"))
    with pytest.raises(ValueError, match=r"has no column 'topic'; its columns are"):
        with_labels(table, "topic", column="text")


def test_a_label_may_be_blank(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("text,group\na,1\nb,\n")
    assert with_labels(str(path), "group", column="text")[1] == ["1", None]


def test_texts_in_refuses_a_table_without_a_column(table):
    with pytest.raises(ValueError, match=r"is a table\. Set --column .*, one of label, text;"):
        texts_in(table)
    with pytest.raises(ValueError, match=r"has no column 'title'; its columns are .*'text'"):
        texts_in(table, "title")


def test_texts_in_names_a_line_that_is_no_object(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "a"}\n{"text"\n')
    with pytest.raises(ValueError, match="line 2 is not JSON"):
        texts_in(str(path), "text")
    path.write_text('["a"]\n')
    with pytest.raises(ValueError, match=r"entry 1 has .* of type str; expected an object"):
        texts_in(str(path), "text")


@pytest.mark.parametrize("ending", ["txt", "log", ""])
def test_texts_in_reads_lines_of_other_files(tmp_path, ending):
    path, content = tmp_path / f"texts.{ending}", b"a, b\n\n c \n"
    path.write_bytes(content)
    assert texts_in(str(path)) == ["a, b", "c"]


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
    assert not stdin.closed


def test_errors_name_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\n\xff\n")))
    with pytest.raises(ValueError, match=r"^standard input, line 2 is not UTF-8"):
        texts_in("-")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text\nhello, world\n", "line 2: 2 cells, where the header has 1. Put ',' between"),
        ("id,text\n1,a\n2\n", "line 3: 1 cells, where the header has 2"),
        ("id;text\n1;a\n\n2\n", "line 4: 1 cells, where the header has 2. Put ';' between"),
        ("text,text\na,b\n", "line 1: two columns have one name"),
        ('text\n"abc\n', "line 2: unexpected end of data"),
        ('text\n"no" she said\n', "line 2: ',' expected after"),
        ("text\n", "has no rows"),
        ("\n", "has no rows"),
        ("text\na\0b\n", "line 2 is not UTF-8, or has a NUL"),
        ("text\ngr\xf6\n".encode("latin1"), "line 2 is not UTF-8"),
    ],
)
def test_texts_in_refuses_a_broken_table(tmp_path, content, message):
    path = tmp_path / "texts.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        texts_in(str(path), "text")


@pytest.mark.parametrize(
    ("name", "content", "column", "expected"),
    [
        ("texts.csv", "price, net;text\n1,5;a\n2,5;b\n", "text", ["a", "b"]),
        ("texts.tsv", "a, b\ttext\n1, 2, 3\tone\n", "text", ["one"]),
        ("texts.csv", "text\na; b\n\tc\n", "text", ["a; b", "c"]),
        ("texts.csv", '"id;a",text\n1,one\n', "text", ["one"]),
    ],
)
def test_the_header_shows_the_separator(tmp_path, name, content, column, expected):
    (tmp_path / name).write_text(content)
    assert texts_in(str(tmp_path / name), column) == expected


def test_a_compressed_file_is_named(tmp_path):
    (tmp_path / "texts.csv.gz").write_bytes(gzip.compress(b"text\none\n"))
    with pytest.raises(ValueError, match=r"gz, line 1 is not UTF-8.*unpack it if it is comp"):
        texts_in(str(tmp_path / "texts.csv.gz"), "text")


@pytest.mark.parametrize("separator", ",;\t")
def test_a_table_of_another_ending_is_read_by_its_column(tmp_path, separator):
    path = tmp_path / "texts.txt"
    path.write_text(f"id{separator}text\n1{separator}one\n2{separator}two\n")
    assert texts_in(str(path), "text") == ["one", "two"]
    if separator == "\t":  # commas are in texts, too
        with pytest.raises(ValueError, match=r"txt' is a table\. Set --column .*of id, text"):
            texts_in(str(path))


@pytest.mark.parametrize(
    "content", ['[\n{"text": "a"}\n]\n', '[{"text": "a"}]', '{"text": "a"}']
)
def test_json_of_another_ending_is_a_table(tmp_path, content):
    (tmp_path / "texts.txt").write_text(content)
    with pytest.raises(ValueError, match=r"txt' is a table\. Set --column .*one of text;"):
        texts_in(str(tmp_path / "texts.txt"))


def test_what_may_be_a_table_with_commas_is_read_with_a_warning(tmp_path):
    path, lines = tmp_path / "texts.txt", ["text,label", '"Oh, no",b', "c,d"]
    path.write_text("\n".join(lines))
    with pytest.warns(UserWarning, match=r"may be a table of 'text,label'.*Set --column"):
        assert texts_in(str(path)) == lines
    for no_table in (
        ["one, two", "three, four", "five, six"],
        ["a,b", "c", "d"],
        ['["a"]'] * 3,
        ['["a"]'],
        ["a" * 200_000] * 3,
    ):
        path.write_text("\n".join(no_table))
        assert texts_in(str(path)) == no_table


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
def test_a_file_without_texts_is_named(content, message, tmp_path):
    file = tmp_path / "sentences.txt"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        texts_in(str(file))
    with pytest.raises(ValueError, match="is a folder; give a file"):
        texts_in(str(tmp_path))


def test_an_error_says_how_to_give_a_list_that_begins_with_a_minus(capsys):
    with pytest.raises(SystemExit):
        main(["compare", "minilm", "toy", "--layers", "-1+3"])
    assert "as in --layers=-1" in capsys.readouterr().err


def test_tabs_in_some_lines_are_no_table(tmp_path):
    (tmp_path / "texts.txt").write_text("one\ttwo\nthree\n")
    assert texts_in(str(tmp_path / "texts.txt")) == ["one\ttwo", "three"]


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
    path.write_text(f"{'long ' * 50_000},text\na,b\n")
    assert texts_in(str(path), "text") == ["b"]


@pytest.mark.parametrize("entry", ["5", "0", "false", "NaN", '["a"]', '{"a": 1}'])
def test_texts_in_refuses_what_is_no_text(tmp_path, entry):
    path = tmp_path / "texts.jsonl"
    path.write_text(f'{{"text": "a"}}\n{{"text": null}}\n{{"text": {entry}}}\n')
    with pytest.raises(ValueError, match=r"line 3 has .* in the column 'text'; expected a t"):
        texts_in(str(path), "text")


@pytest.mark.parametrize(
    ("lines", "columns"),
    [
        (['{"id": 1, "text": "a b"}', '{"id": 2, "text": "c d"}'], "id, text"),
        (["id|text", "1|one", "2|two"], "id, text"),
        (["id;text", "1;one", "2;two"], "id, text"),
    ],
)
def test_a_table_of_another_ending_is_not_read_as_texts(lines, columns, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(lines), "utf-8")
    with pytest.raises(ValueError, match=f"is a table. Set --column .*{columns}"):
        texts_in(str(file))
    assert len(texts_in(str(file), "text")) == 2


def test_texts_with_some_bars_and_semicolons_are_texts(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("either | or\nthis; that\nneither", "utf-8")
    assert len(texts_in(str(file))) == 3


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"name": "b"}', "line 2 has no 'text', only 'name'"),
        (r'{"text": "half \ud83d"}', "line 2 has half of a surrogate pair in 'text'"),
    ],
)
def test_a_row_that_has_no_text_to_read_is_named(row, message, tmp_path):
    file = tmp_path / "texts.jsonl"
    file.write_text(f'{{"text": "a"}}\n{row}', "utf-8")
    with pytest.raises(ValueError, match=message):
        texts_in(str(file), "text")
