"""How the command line ends when something is wrong."""

from __future__ import annotations

import logging

import pytest

from orchestration.cli import main as cli
from orchestration.cli.log_lines import JsonLines, LogLines
from orchestration.operators.selections import DlqError
from publisher import SettingsError
from tests.zones import local_zone


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (DlqError("no message is called 'x'"), "error: no message is called 'x'"),
        (SettingsError("max_rows is [0]"), "error: max_rows is [0]"),
        (DlqError("no message is called \x1b[2J\u202e\x9b\x07"), "error: no message is called �[2J���"),
        (KeyError("nobody thought of it"), "KeyError: 'nobody thought of it'"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], raised: Exception, said: str
) -> None:
    def fails() -> None:
        raise raised

    monkeypatch.setattr(cli, "app", fails)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == getattr(raised, "exit_code", 1)
    told = capsys.readouterr()
    assert (told.out, told.err.rstrip()) == ("", said)


@pytest.mark.parametrize("formatter", [LogLines(), JsonLines()])
def test_log_lines_have_times_in_utc(formatter: logging.Formatter) -> None:
    record = logging.LogRecord("redrive", logging.INFO, "", 0, "said", None, None)
    record.created, record.msecs = 1_793_513_400.005, 5
    with local_zone("America/New_York"):
        assert "2026-11-01T06:10:00.005Z" in formatter.format(record)
