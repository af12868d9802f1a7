"""Whatever others wrote, a terminal and a log get letters only; and errors of ours have no secret in them."""

from __future__ import annotations

import ast
import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

from orchestration.cli.main import app
from orchestration.log_lines import JsonLines, LogLines
from orchestration.logs import Event
from orchestration.operators.rendering import (
    dead_letter_table,
    facts,
    group_table,
    header_lines,
    payload_lines,
    related_table,
    stats_table,
    waiting_table,
)
from orchestration.output import SafeConsole, as_json, hide, one_line, printable
from orchestration.rules.check_findings import Finding
from orchestration.rules.explain import in_words
from orchestration.settings import load_settings
from orchestration.status import Status, write_status
from orchestration.tables.query import Format, Rows, print_rows

ROOT = Path(__file__).parents[2]

# escape sequences, bells, carriage returns and line ends, marks of direction, C1 controls, and more than anybody reads
HOSTILE = (
    "\x1b[2J\x1b]0;title\x07\r\n2026-03-01 12:00:00,000 ERROR   forged"
    + "".join(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, *range(0x80, 0xA0), 0x7F, 0x2028, 0x2029)))
    + "x" * 10_000
)


def is_safe(text: str) -> bool:
    return all(letter.isprintable() or letter == "\n" for letter in text)


@pytest.fixture
def screen() -> SafeConsole:
    return SafeConsole(file=io.StringIO(), width=200, highlight=False)


def shown(screen: SafeConsole) -> str:
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_a_console_shows_letters_only(screen: SafeConsole) -> None:
    table = Table(HOSTILE, "second", title=HOSTILE)
    table.add_row(HOSTILE, Text(HOSTILE))
    screen.print(table)
    screen.print(HOSTILE)
    screen.print(Text(HOSTILE))
    assert "forged" in shown(screen)
    assert is_safe(shown(screen))


def test_json_loses_nothing_and_tells_a_terminal_nothing() -> None:
    written = as_json({"text": HOSTILE, "high": "\U000e0001", "letters": "äß漢😀"})
    assert written.isprintable()
    assert "äß漢😀" in written
    assert json.loads(written) == {"text": HOSTILE, "high": "\U000e0001", "letters": "äß漢😀"}


def test_rows_of_a_select_are_safe_in_every_form(screen: SafeConsole, capsys: pytest.CaptureFixture[str]) -> None:
    rows = Rows(("a", HOSTILE), ((HOSTILE, HOSTILE.encode()), ([HOSTILE], {HOSTILE: HOSTILE})), more=False)
    print_rows(rows, "table", screen)
    said = {"table": shown(screen)}
    for output in (form for form in get_args(Format) if form != "table"):
        print_rows(rows, output)
        said[output] = capsys.readouterr().out
    assert [output for output, text in said.items() if "forged" not in text or not is_safe(text)] == []


@pytest.mark.parametrize("command", ["status", "status --format json", "check"])
def test_what_went_wrong_with_the_loop_is_told_in_letters(
    command: str, tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDRIVE_PROJECT", str(pytestconfig.rootpath))
    troubled = Status("running", 1, HOSTILE, 1, 1, "now", 1, 1, "now", None, trouble={HOSTILE: HOSTILE})
    write_status(load_settings(home=tmp_path).status_file, troubled)
    findings = [Finding(ok, HOSTILE, HOSTILE, warns=ok) for ok in (True, False)]
    monkeypatch.setattr("orchestration.rules.check.run_checks", lambda *_, **__: findings)
    said = CliRunner().invoke(app, [*command.split(), "--home", str(tmp_path)]).output
    assert "forged" in said
    assert is_safe(said)


TEXTS = """message_id state error_class error_message error_pattern error_kind reason original_topic consumer_group topic rule fingerprint
    matched note ticket owner runbook logs_url trace_url request_id process_id trace_id omitted payload_type decision delivery_id command
    who why outcome policy policy_text"""
TIMES = "dead_at last_seen next_due at failed_at due_at first_failed_at original_timestamp purged_at not_before"
NUMBERS = """open dead died refused attempts max_attempts later_ms last_24_hours this_hour last_7_days usual life_cycle life_cycles attempt
    partition offset
    original_partition original_offset lateness_ms schema_id value_bytes"""
ROW = {
    **dict.fromkeys(TEXTS.split(), HOSTILE),
    **dict.fromkeys(TIMES.split()),
    **dict.fromkeys(NUMBERS.split(), 1),
    "topics": [HOSTILE],
    "by_hour": [1],
    "passed_over": [HOSTILE],
    "key": HOSTILE.encode(),
    "is_unusual": True,
    "by_reference": True,
    "delay_ms": 1000,
    "base_delay_ms": 500,
    "quota_multiplier": 5.0,
    "rules_have_changed": True,
}


@pytest.mark.parametrize("table", [dead_letter_table, group_table, related_table, stats_table, waiting_table])
def test_the_tables_of_dlq_are_safe(table: object, screen: SafeConsole) -> None:
    assert callable(table)
    row = {**ROW, "relations": [HOSTILE]}
    screen.print(table(Rows(tuple(row), (tuple(row.values()),), more=False)))
    assert shown(screen).strip()
    assert is_safe(shown(screen))


def test_what_is_told_of_one_message_is_safe(screen: SafeConsole) -> None:
    histories = [ROW | {"what": "decided", "command": None}, ROW | {"what": "decided"}]
    histories += [ROW | {"what": "sent", "outcome": outcome} for outcome in ("delivered", "unknown", HOSTILE)]
    for lines in (facts(ROW), header_lines([{"key": HOSTILE, "value": HOSTILE.encode()}])):
        assert all(is_safe(name) and is_safe(text) for name, text in lines)
    for kind in ("json", "text", "bytes"):
        assert all(is_safe(line) for line in payload_lines(HOSTILE.encode(), kind, None))
    for lines in (in_words(histories), facts(ROW), header_lines([{"key": HOSTILE, "value": HOSTILE.encode()}])):
        for name, text in lines:
            screen.print(name, Text(text))
    for kind in ("json", "text", "bytes"):
        for line in payload_lines(HOSTILE.encode(), kind, None):
            screen.print(line, markup=False)
    assert "forged" in shown(screen)
    assert is_safe(shown(screen))


def record(*arguments: object, message: object = "%s", error: bool = False) -> logging.LogRecord:
    raised = None
    if error:
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            raised = sys.exc_info()
    return logging.LogRecord("orchestration.loop.circuit_breakers", logging.WARNING, "circuit_breakers.py", 1, message, arguments, raised)


def test_a_record_of_the_log_is_one_line() -> None:
    line = LogLines().format(record("orders", HOSTILE, message="circuit breaker %s is open: %s"))
    assert is_safe(line)
    assert "\n" not in line
    assert len(line) < 5_000
    assert re.match(r"\S+Z WARNING circuit breaker orders is open: �\[2J", line)
    line = LogLines().format(
        record(message=Event("circuit_breaker_opened", {"circuit_breaker": "orders", **dict.fromkeys("abc", HOSTILE)}))
    )
    assert is_safe(line)
    assert "\n" not in line
    assert len(line) < 5_000
    assert re.match(r'\S+Z WARNING circuit_breaker_opened circuit_breaker=orders a="�\[2J', line)
    # it is cut within the fields, so that the quotes are closed, and none of them is left out
    assert re.search(r' b="�[^"]*" c="�[^"]*"$', line)


def test_a_traceback_forges_no_record() -> None:
    lines = LogLines().format(record("orders", error=True)).splitlines()
    assert is_safe("".join(lines))
    assert [line for line in lines[1:] if not line.startswith("    ")] == []
    assert any("forged" in line for line in lines)


def test_a_record_in_json_is_one_object() -> None:
    event = record(message=Event("circuit_breaker_opened", {"circuit_breaker": HOSTILE}))
    assert json.loads(JsonLines().format(event))["circuit_breaker"] == HOSTILE
    for line in map(JsonLines().format, (record(HOSTILE), record("x", error=True), event)):
        assert line.isprintable()
        assert json.loads(line)["level"] == "warning"


@pytest.fixture
def secret() -> Iterator[str]:
    hide(["hunter2-s3cret"])
    yield "hunter2-s3cret"
    hide(())


def test_errors_and_log_lines_have_no_secret_in_them(secret: str) -> None:
    screen = SafeConsole(file=io.StringIO(), secretive=True)
    screen.print(f"error: Unrecognized config at {secret[3:]}, in {secret}")
    event = record(message=Event("part_failed", {"part": secret, "reason": ValueError(f"in {secret}"), "topics": [secret]}))
    lines = [shown(screen), LogLines().format(record(secret)), JsonLines().format(record(secret[4:])), one_line(secret)]
    lines += [LogLines().format(event), JsonLines().format(event), event.getMessage()]
    assert not [line for line in lines if secret[4:] in line]
    assert all("***" in line for line in lines)


def test_what_is_printable_stays_as_it_is() -> None:
    assert printable("äß漢😀 {x}\n") == "äß漢😀 {x}\n"


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for folder in ("orchestration", "publisher"):
        for path in (ROOT / folder).rglob("*.py"):
            yield path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))


def calls(tree: ast.AST, *names: str) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", None)) in names
    ]


def test_nobody_else_makes_a_console_or_a_formatter() -> None:
    others = [
        f"{path}:{call.lineno}"
        for path, tree in modules()
        if path.name not in ("output.py", "log_lines.py")
        for call in calls(tree, "Console", "Formatter", "StreamHandler")
    ]
    assert others == []


def test_nobody_else_makes_a_kafka_client() -> None:
    others = [f"{path}:{call.lineno}" for path, tree in modules() for call in calls(tree, "Producer", "Consumer", "AdminClient")]
    assert others == []
