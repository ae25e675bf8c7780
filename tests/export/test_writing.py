"""Files and folders that are written whole, or not at all."""

import pytest

from skcalib.export._writing import written_whole


def write(path, content, kind):
    """Write a file, or a folder with a file in it."""
    if kind == "folder":
        path.mkdir()
        path /= "file"
    path.write_text(content)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_another_process_has_written_meanwhile_stays(tmp_path, kind):
    target = tmp_path / "model"

    def write_at_once():
        with written_whole(target) as mine:
            write(mine, "mine", kind)
            write(target, "theirs", kind)

    with pytest.raises(FileExistsError, match="there is something of that name already"):
        write_at_once()
    assert list(tmp_path.iterdir()) == [target]
    assert (target / "file" if kind == "folder" else target).read_text() == "theirs"


def test_an_empty_folder_made_meanwhile_is_taken(tmp_path):
    target = tmp_path / "model"
    with written_whole(target) as mine:
        write(mine, "mine", "folder")
        target.mkdir()
    assert (target / "file").read_text() == "mine"
    assert list(tmp_path.iterdir()) == [target]
