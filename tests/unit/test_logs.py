"""Events of the log: how they are written, and that the page about them says the same as the code."""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from orchestration.log_lines import JsonLines, LogLines
from orchestration.logs import Event, event
from orchestration.loop.reports import log_first_sends, log_tick
from orchestration.loop.steps import Sent, Tick

ROOT = Path(__file__).parents[2]
CODE = ROOT / "orchestration"

log = logging.getLogger(__name__)


@pytest.mark.parametrize(
    ("value", "text", "plain"),
    [
        ("orders", "orders", "orders"),
        ("orders.dlq/0", "orders.dlq/0", "orders.dlq/0"),
        ("", '""', ""),
        ("two words", '"two words"', "two words"),
        ("a=b", '"a=b"', "a=b"),
        ('says "no"', r'"says \"no\""', 'says "no"'),
        (r"C:\temp", r'"C:\\temp"', r"C:\temp"),
        ("two\nlines", '"two lines"', "two\nlines"),
        (17, "17", 17),
        (0.5, "0.5", 0.5),
        (15.0, "15", 15.0),
        (True, "true", True),
        (["a", "b"], "a,b", ["a", "b"]),
        (ValueError("too large"), '"too large"', "too large"),
        (Path("/tmp/seeds"), "/tmp/seeds", "/tmp/seeds"),
        (
            datetime(2026, 3, 1, 17, 45, 5, 7999, timezone(timedelta(hours=5, minutes=45))),
            "2026-03-01T12:00:05.007Z",
            "2026-03-01T12:00:05.007Z",
        ),
    ],
)
def test_a_field_is_written_as_logfmt_and_as_json(caplog: pytest.LogCaptureFixture, value: object, text: str, plain: object) -> None:
    with caplog.at_level(logging.INFO):
        event(log, logging.INFO, "thing_happened", what=value, nothing=None)
    (record,) = caplog.records
    assert record.getMessage() == f"thing_happened what={text}"
    assert re.fullmatch(r"\S+Z INFO    " + re.escape(record.getMessage()), LogLines().format(record))
    written = json.loads(JsonLines().format(record))
    assert written == {"at": written["at"], "level": "info", "event": "thing_happened", "what": plain}
    # where it was logged is the caller's place
    assert record.filename == Path(__file__).name


def test_what_a_library_logs_stays_a_message(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log.info("%d things", 3)
    (record,) = caplog.records
    assert LogLines().format(record).endswith(" INFO    3 things")
    assert json.loads(JsonLines().format(record))["message"] == "3 things"


def test_an_event_below_the_level_costs_nothing(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestration.logs.Event", pytest.fail)
    with caplog.at_level(logging.WARNING):
        event(log, logging.INFO, "thing_happened", what="nobody reads it")
    assert not caplog.records


def test_a_traceback_follows_an_event(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        try:
            raise ValueError("too large")
        except ValueError:
            event(log, logging.INFO, "thing_happened", exc_info=True)
    (record,) = caplog.records
    assert record.msg == Event("thing_happened", {})
    assert "    ValueError: too large" in LogLines().format(record).splitlines()
    assert "ValueError: too large" in json.loads(JsonLines().format(record))["traceback"]


def test_a_tick_has_a_field_for_each_number(caplog: pytest.LogCaptureFixture) -> None:
    tick = Tick(
        counts={"events": 5, "delivered": 0, "decisions": 5}, step_ms={"intake": 210, "publish": 0}, sent={"timed": Sent(9, (120, 610))}
    )
    with caplog.at_level(logging.INFO):
        log_tick(7, tick)
        log_tick(8, Tick(counts={"events": 1}))
        log_first_sends(tick)
        log_first_sends(Tick(counts={"events": 5, "held": 1}))
    assert [record.getMessage() for record in caplog.records] == [
        "tick_completed tick=7 events=5 decisions=5 intake_ms=210 publish_ms=0 late_p50_ms=120 late_p99_ms=610",
        "tick_completed tick=8 events=1",
        # a start that has only read reports has sent nothing
        "due_deliveries_sent events=5 held=1",
    ]


# ---------- the code, and the page about it


def calls() -> Iterator[ast.Call]:
    for path in CODE.rglob("*.py"):
        if path != CODE / "logs.py":
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "event":
                    yield node


def in_the_code() -> dict[str, tuple[str, set[str]]]:
    """Level and fields by event. `*`: fields whose names aren't written there."""
    found: dict[str, tuple[str, set[str]]] = {}
    for call in calls():
        _, level, name = call.args
        assert isinstance(level, ast.Attribute), ast.dump(level)
        assert isinstance(name, ast.Constant), f"the name of an event is written where it is logged: {ast.dump(name)}"
        assert isinstance(name.value, str)
        assert name.value not in found, f"{name.value} is logged in two places: let them share a function"
        found[name.value] = (level.attr.lower(), {word.arg or "*" for word in call.keywords} - {"exc_info"})
    return found


def test_each_event_is_in_the_page_with_its_level_and_its_fields() -> None:
    page = (ROOT / "docs" / "logs.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*)\| ([^|]+) \|$", page, re.MULTILINE)
    told: dict[str, Any] = {name: (level, set(re.findall(r"`([\w*]+)`", fields))) for name, level, fields, _ in rows}
    assert len(told) == len(rows), "an event has one row"
    assert told == in_the_code()


def test_names_are_in_snake_case_and_no_field_hides_what_every_line_has() -> None:
    for name, (_, fields) in in_the_code().items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)+", name), name
        assert not fields & {"at", "level", "event", "message", "traceback"}, name


def test_nothing_is_logged_but_events() -> None:
    texts = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in CODE.rglob("*.py")
        if path != CODE / "logs.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in ("log", "logger", "logging")
        and node.func.attr in ("debug", "info", "warning", "error", "critical", "exception", "log")
    ]
    assert texts == []
