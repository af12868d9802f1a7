"""What Spark prints goes to a file; what is wrong with it is shown all the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestration.spark import _LOG_BYTES, _printing_to


def _print(text: str) -> None:
    subprocess.run(["sh", "-c", f"echo {text} >&2"], check=True)


def test_what_a_process_prints_that_is_started_here_goes_to_the_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "logs" / "spark.log"
    for text in ("one", "two"):
        with _printing_to(log):
            _print(text)
        _print("afterwards")
    assert log.read_text() == "one\ntwo\n"
    assert capfd.readouterr().err == "afterwards\n" * 2


def _start_nothing(log: Path) -> None:
    with _printing_to(log):
        _print("invalid maximum heap size")
        raise OSError("no such thing")


def test_a_process_that_can_not_be_started_is_quoted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OSError, match="no such thing"):
        _start_nothing(tmp_path / "spark.log")
    assert capfd.readouterr().err == "invalid maximum heap size\n"


def test_a_file_that_has_grown_large_begins_anew(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_bytes(b"x" * (_LOG_BYTES + 1))
    with _printing_to(log):
        _print("one")
    assert log.read_text() == "one\n"
