"""What Spark prints goes to a file; what is wrong with it is shown all the same."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import IO

import pytest

from orchestration.output import LONGEST_LINE, hide
from orchestration.tables.jvm import _LOG_BYTES, output_to
from orchestration.tables.spark import in_short


def _print(text: str, log: IO[bytes]) -> None:
    subprocess.run(["sh", "-c", f"echo {text} >&2"], check=True, stderr=log)


def test_what_a_process_prints_that_is_started_here_goes_to_the_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "logs" / "spark.log"
    for text in ("one", "two"):
        with output_to(path) as log:
            _print(text, log)
            # what this process says in the meantime is read where it is always read
            os.write(2, b"meanwhile\n")
    assert path.read_text() == "one\ntwo\n"
    assert capfd.readouterr().err == "meanwhile\n" * 2


def _start_nothing(path: Path, said: bytes = b"invalid maximum heap size\n") -> None:
    with output_to(path) as log:
        log.write(said)
        raise OSError("no such thing")


def test_a_process_that_can_not_be_started_is_quoted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OSError, match="no such thing"):
        _start_nothing(tmp_path / "spark.log")
    assert capfd.readouterr().err == "invalid maximum heap size\n"


def test_the_quotation_has_letters_only_and_no_secret_in_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    hide(["hunter2-s3cret"])
    try:
        with pytest.raises(OSError, match="no such thing"):
            _start_nothing(tmp_path / "spark.log", "no \x1b[2J\u202e\nin hunter2-s3cret\n".encode() + b"\xff" + b"x" * 10_000)
    finally:
        hide(())
    first, second, third = capfd.readouterr().err.splitlines()
    assert (first, second, third[:2], len(third)) == ("no �[2J�", "in ***", "�x", LONGEST_LINE)


def test_a_file_that_has_grown_large_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "spark.log"
    path.write_bytes(b"x" * (_LOG_BYTES + 1))
    with output_to(path) as log:
        _print("one", log)
    assert path.read_text() == "one\n"


JVM_ERROR = """An error occurred while calling o123.overwrite.
: org.apache.iceberg.jdbc.UncheckedSQLException: Unknown failure
\tat org.apache.iceberg.jdbc.JdbcTableOperations.doCommit(JdbcTableOperations.java:153)
\tat java.base/java.lang.Thread.run(Thread.java:840)
\tSuppressed: org.apache.spark.util.Utils$OriginalTryStackTraceException: Full stacktrace of original doTryWithCallerStacktrace caller
Caused by: java.lang.RuntimeException: in between
\t... 12 more
Caused by: org.sqlite.SQLiteException: [SQLITE_BUSY] The database file is locked
\t... 37 more
"""


@pytest.mark.parametrize(
    ("said", "short"),
    [
        (
            JVM_ERROR,
            "org.apache.iceberg.jdbc.UncheckedSQLException: Unknown failure; "
            "Caused by: org.sqlite.SQLiteException: [SQLITE_BUSY] The database file is locked",
        ),
        ("plain", "plain"),
        (
            "[TABLE_OR_VIEW_NOT_FOUND] no such table\nverify it\n\nJVM stacktrace:\n\tat a.B(C.java)",
            "[TABLE_OR_VIEW_NOT_FOUND] no such table; verify it",
        ),
        ("", "''"),
    ],
)
def test_what_spark_says_is_told_in_a_line(said: str, short: str) -> None:
    assert in_short(said) == short
