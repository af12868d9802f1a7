"""How the command line ends when something is wrong."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestration.cli import main as cli
from orchestration.cli.ending import SUPERSEDED_EXIT
from orchestration.dagster.resource import Redrive
from orchestration.log_lines import JsonLines, LogLines
from orchestration.operators.selections import DlqError
from orchestration.settings import SettingsError, load_settings
from orchestration.status import Status, write_status
from publisher import SettingsError as PublisherError
from tests.zones import local_zone


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (DlqError("no message is called 'x'"), "error: no message is called 'x'"),
        (PublisherError("max_rows is [0]"), "error: max_rows is [0]"),
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


@pytest.fixture
def without_address(pytestconfig: pytest.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has commands find a home, and no bootstrap address."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRIVE_PROJECT", str(pytestconfig.rootpath))
    monkeypatch.setenv("REDRIVE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("REDRIVE_KAFKA__BOOTSTRAP_SERVERS", raising=False)


WHAT_TO_SET = "bootstrap.servers is not set: REDRIVE_KAFKA__BOOTSTRAP_SERVERS=host:9092, or [kafka] in redrive.toml"


@pytest.mark.parametrize(
    "command",
    [
        "run",
        "tick",
        "dlq redrive billing:orders/0/0 --reason why",
        "dlq pause 00000000-0000-0000-0000-000000000000 --reason why",
        "dlq triage",
        "waiting cancel --all --reason why",
    ],
)
@pytest.mark.usefixtures("without_address", "no_spark")
def test_a_command_that_needs_an_address_says_so_before_it_starts_anything(command: str) -> None:
    given = CliRunner().invoke(cli.app, command.split())
    assert isinstance(given.exception, SettingsError)
    assert WHAT_TO_SET in str(given.exception)


@pytest.mark.usefixtures("without_address", "no_spark")
def test_a_loop_of_dagsters_needs_an_address_too() -> None:
    with pytest.raises(SettingsError, match=r"bootstrap\.servers is not set"):
        Redrive().new_loop(take_over=True)


@pytest.mark.usefixtures("without_address", "no_spark")
def test_check_shows_a_missing_address_among_what_it_finds() -> None:
    given = CliRunner().invoke(cli.app, ["check"])
    assert given.exit_code == 1
    assert WHAT_TO_SET in given.stdout


@pytest.mark.usefixtures("without_address", "no_spark")
def test_the_tables_are_listed_where_there_are_none_yet() -> None:
    given = CliRunner().invoke(cli.app, ["sql", "--tables", "--format", "json"])
    assert given.exit_code == 0, given.output
    listed = {row["name"]: row for row in json.loads(given.stdout)}
    assert {name: listed[name]["group"] for name in ("messages", "dead_letters", "deliveries", "events", "retry_policies")} == {
        "messages": "marts", "dead_letters": "marts", "deliveries": "retry", "events": "ledgers", "retry_policies": "rules",
    }  # fmt: skip
    assert all(row["description"] for row in listed.values())


@pytest.mark.parametrize("arguments", [(), ("select 1", "--tables")])
@pytest.mark.usefixtures("without_address", "no_spark")
def test_sql_takes_either_a_statement_or_the_option_that_lists_tables(arguments: tuple[str, ...]) -> None:
    given = CliRunner().invoke(cli.app, ["sql", *arguments])
    assert given.exit_code == 2
    assert "either one select, or --tables" in given.output


@pytest.mark.parametrize(
    ("idle", "superseded_by", "stops", "command", "code"),
    [
        (True, None, False, "run --until-idle", 0),
        (False, None, False, "run --until-idle", 1),
        # a signal has ended it
        (False, None, True, "run --until-idle", 0),
        (False, None, True, "run", 0),
        (False, 8, True, "run", SUPERSEDED_EXIT),
    ],
)
def test_the_exit_code_says_how_a_loop_has_ended(
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
    tmp_path: Path,
    idle: bool,
    superseded_by: int | None,
    stops: bool,
    command: str,
    code: int,
) -> None:
    class Loop:
        def __init__(self, _: object) -> None:
            self.superseded_by, self.stopping = superseded_by, SimpleNamespace(is_set=lambda: stops)

        def start(self) -> None:
            pass

        def run(self, **_: object) -> bool:
            return idle

    monkeypatch.setattr("orchestration.loop.loop.Loop", Loop)
    monkeypatch.setattr("orchestration.cli.run.end_on_signals", lambda _: None)
    monkeypatch.setenv("REDRIVE_PROJECT", str(pytestconfig.rootpath))
    monkeypatch.setenv("REDRIVE_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    given = CliRunner().invoke(cli.app, [*command.split(), "--home", str(tmp_path)])
    assert given.exit_code == code, given.output


def test_the_status_shows_what_both_lanes_have_and_sent(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDRIVE_PROJECT", str(pytestconfig.rootpath))
    sent: dict[str, dict[str, Any]] = {"timed": {"delivered": 230, "lateness_ms": (12, 340)}, "bulk": {"delivered": 0, "lateness_ms": None}}
    status = Status("stopped", 1, "default", 1, 1, "now", 1, 1, "now", None, in_lane=7, lane_next_due="12:00", sent=sent)
    write_status(load_settings(home=tmp_path).status_file, status)
    said = " ".join(CliRunner().invoke(cli.app, ["status", "--home", str(tmp_path)]).output.split())
    assert "timed lane 7 messages wait, the next is sent at 12:00; 230 sent in the last tick, late by 12 ms (median), 340 ms" in said
    assert "bulk lane nothing sent in the last tick" in said
