"""Files and folders that are written whole, or not at all."""

import os

import pytest

from skcalib.export._writing import written_whole


def write(path, error=None):
    with written_whole(path) as target:
        target.mkdir()
        (target / "part").write_text("whole")
        if error:
            raise error


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_error_leaves_nothing(tmp_path, error):
    with pytest.raises(error, match="full"):
        write(tmp_path / "new" / "folder", error("full"))
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize("folder", [".", "empty", "empty/", "link", "dangling"])
def test_an_empty_folder_is_filled_by_whatever_name(folder, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    (tmp_path / "dangling").symlink_to(tmp_path / "new")
    monkeypatch.chdir(tmp_path / "empty" if folder == "." else tmp_path)
    write(folder)
    filled = tmp_path / ("new" if folder == "dangling" else "empty")
    assert os.listdir(filled) == ["part"]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_what_is_there_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(FileExistsError, match="exists already"):
            write(path)
    with pytest.raises(FileExistsError, match="file"):
        write(tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("theirs", ["file", "folder"])
def test_what_another_process_has_written_meanwhile_stays(tmp_path, theirs):
    target = tmp_path / "model"

    def write_at_once():
        with written_whole(target) as mine:
            mine.mkdir()
            (mine / "part").write_text("mine")
            write(target) if theirs == "folder" else target.write_text("whole")

    with pytest.raises(FileExistsError, match="exists already"):
        write_at_once()
    assert list(tmp_path.iterdir()) == [target]
    assert (target / "part" if theirs == "folder" else target).read_text() == "whole"
