"""The archive of Spark's classes: who writes it, who uses it, and that a broken one keeps nobody from starting."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from orchestration.demo.kafka_process import find_java
from orchestration.tables import class_archive as module
from orchestration.tables.class_archive import ClassArchive, class_archive


def started(option: str | None, *more: str) -> subprocess.CompletedProcess[str]:
    """A JVM with the option, which ends at once."""
    return subprocess.run([str(find_java()), *shlex.split(option or ""), *more, "-version"], capture_output=True, text=True)


def test_the_first_jvm_writes_what_the_next_ones_use(tmp_path: Path) -> None:
    # a blank in the path, as in some homes
    archive = ClassArchive(tmp_path / "my classes", "k")
    first = archive.option()
    assert first is not None
    assert "ArchiveClassesAtExit" in first
    assert archive.option() is None, "another one is writing"
    assert started(first).returncode == 0
    later = archive.option()
    assert later is not None
    assert shlex.split(later) == [f"-XX:SharedArchiveFile={tmp_path / 'my classes' / 'k.jsa'}"]
    # with -Xshare:on, Java refuses to start without the archive
    assert started(later, "-Xshare:on").returncode == 0
    assert [path.name for path in archive.directory.iterdir()] == ["k.jsa"]
    assert "ArchiveClassesAtExit" in str(ClassArchive(archive.directory, "of another Java").option())


def test_an_archive_that_was_not_written_to_its_end_is_not_used_and_written_anew(tmp_path: Path) -> None:
    archive = ClassArchive(tmp_path, "k")
    half = tmp_path / "k.1-1.part"
    half.write_bytes(bytes(1_000))
    assert archive.option() is None
    os.utime(half, (1, 1))
    assert "ArchiveClassesAtExit" in str(archive.option())
    assert not half.exists()
    assert not (tmp_path / "k.jsa").exists()


def test_a_broken_archive_stops_no_jvm(tmp_path: Path) -> None:
    archive = ClassArchive(tmp_path, "k")
    (tmp_path / "k.1-1.part").write_bytes(module._MAGIC + b"\xff" * 10_000)
    option = archive.option()
    assert "SharedArchiveFile" in str(option)
    assert started(option).returncode == 0


def test_what_nobody_uses_any_more_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, used = tmp_path / "old.jsa", tmp_path / "k.jsa"
    for path in (old, used):
        path.write_bytes(module._MAGIC)
    os.utime(old, (1, 1))
    assert "SharedArchiveFile" in str(ClassArchive(tmp_path, "k").option())
    assert [path.name for path in tmp_path.iterdir()] == ["k.jsa"]


def test_without_a_place_or_without_java_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    assert ClassArchive(tmp_path / "file" / "classes", "k").option() is None
    assert ClassArchive(tmp_path / 'a"b', "k").option() is None
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert class_archive("") is None


def test_another_java_or_other_packages_have_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one, other = class_archive("a:b:1"), class_archive("a:b:2")
    assert one is not None
    assert other is not None
    assert (one.directory, one == class_archive("a:b:1"), one.key == other.key) == (tmp_path / "redrive" / "classes", True, False)
