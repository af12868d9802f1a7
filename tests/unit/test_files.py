"""Files that save work: copied where that is possible."""

from __future__ import annotations

from pathlib import Path

from orchestration.files import copy_if_there


def test_a_file_is_copied_into_a_directory_that_is_made(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"\x00\xff")
    copy_if_there(tmp_path / "kept", tmp_path / "new" / "place")
    assert (tmp_path / "new" / "place" / "kept").read_bytes() == b"\x00\xff"


def test_without_the_file_or_a_place_for_it_nothing_happens(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    copy_if_there(tmp_path / "missing", tmp_path)
    copy_if_there(tmp_path / "file", tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
