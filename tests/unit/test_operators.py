"""What an operator's command is made of, before anybody is asked: words, lists, records."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestration.loop.commands import Commands, _Open
from orchestration.loop.issued import IssuedCommands
from orchestration.operators.commands import CommandError, CommandRequest, check_request, parse_assume_after, parse_at, parse_rate
from orchestration.operators.lists import Target, keep, kept
from orchestration.operators.sending import records
from orchestration.rules.seeds import Row, Seeds
from orchestration.settings import Settings, load_settings

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def settings(pytestconfig: pytest.Config, tmp_path: Path) -> Settings:
    return load_settings(home=tmp_path, project=pytestconfig.rootpath, decisions_topic="told", protected_topics="a b.redrive.*")


@pytest.fixture
def seeds() -> Seeds:
    return Seeds({"sources": (Row(2, {"source": "failures", "topic": "failures"}),)}, "digest")


def _listed(number: int, topic: str = "orders", group: str | None = "billing", kind: str = "fatal") -> Target:
    return Target(f"m/{number}", f"m/{number}#abc", 1_000 + number, topic, group, "KeyError", kind)


@pytest.mark.parametrize(("text", "rate"), [("50/s", 50), ("30/m", 0.5), ("1.5/h", 1.5 / 3600)])
def test_a_rate_is_messages_a_second(text: str, rate: float) -> None:
    assert parse_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["50", "0/s", "-1/s", "1/d", "fast", "1e9/s", ""])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="is no rate: 50/s"):
        parse_rate(text)


def test_times_have_units_and_zones() -> None:
    assert parse_assume_after("5m") == timedelta(minutes=5)
    assert parse_at("2026-03-01T12:00") == parse_at("2026-03-01T13:00+01:00") == NOW
    for parse, text in ((parse_assume_after, "5"), (parse_assume_after, "999999d"), (parse_at, "noon")):
        with pytest.raises(CommandError, match="is no time"):
            parse(text)


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        (CommandRequest("redrive", "  ", "ada"), "--reason must say something"),
        (CommandRequest("redrive", "why", "ada", to="no topic"), "the name of a topic"),
        (CommandRequest("redrive", "why", "ada", to="failures"), "read by redrive itself"),
        *(
            (CommandRequest("redrive", "why", "ada", to=to), "it is an internal topic")
            for to in ("redrive.commands", "_schemas", "told", "b.redrive.x")
        ),
        (CommandRequest("redrive", "why", "ada", canary=0), "--canary must be 1 or more"),
        (CommandRequest("pause", "why", "ada", of="'; drop table events"), "is no id of a command"),
    ],
)
def test_what_nothing_could_come_of_is_refused(settings: Settings, seeds: Seeds, asked: CommandRequest, complaint: str) -> None:
    with pytest.raises(CommandError, match=complaint):
        check_request(settings, seeds, asked)


def test_a_long_list_goes_out_in_parts_that_one_digest_covers() -> None:
    listed = [_listed(number) for number in range(30_000)]
    *parts, closing = map(json.loads, records(CommandRequest("redrive", "why", "ada", rate=1 / 3600), listed))
    assert len(parts) > 1
    assert max(len(json.dumps(part)) for part in parts) < 512 * 1024
    assert [delivery for part in parts for delivery in part["deliveries"]] == [[one.delivery_id, one.due_ms] for one in listed]
    assert [part["part"] for part in parts] == list(range(len(parts)))
    lines = ["\n".join(f"{name} {due}" for name, due in part["deliveries"]) for part in parts]
    digests = [hashlib.sha256(line.encode()).hexdigest() for line in lines]
    assert closing == {
        "format": 1,
        "closed": True,
        "count": 30_000,
        "what": "redrive",
        "who": "ada",
        "reason": "why",
        "rate": "0.000277778",
        "digest": hashlib.sha256("\n".join(digests).encode()).hexdigest(),
    }


def test_a_list_is_kept_as_it_was_shown(tmp_path: Path) -> None:
    listed = [_listed(number) for number in range(3)]
    name = keep(tmp_path, listed)
    assert [(one.delivery_id, one.due_ms) for one in kept(tmp_path, name)] == [(one.delivery_id, one.due_ms) for one in listed]
    path = tmp_path / "lists" / f"{name}.jsonl"
    path.write_text(path.read_text(encoding="utf-8").replace("m/2#", "m/3#"), encoding="utf-8")
    with pytest.raises(CommandError, match="was changed"):
        kept(tmp_path, name)
    with pytest.raises(CommandError, match="there is no such list"):
        kept(tmp_path, "../../etc/passwd")


@pytest.mark.parametrize(
    ("changes", "issued", "state"),
    [
        ({}, 0, "running"),
        ({"canary": 10}, 9, "running"),
        ({"canary": 10}, 10, "canary"),
        ({"canary": 10, "passed": True}, 10, "running"),
        ({"start_at": NOW}, 0, "running"),
        ({"start_at": NOW + timedelta(seconds=1)}, 0, "waiting"),
        ({"start_at": NOW + timedelta(seconds=1), "paused": True}, 0, "paused"),
    ],
)
def test_how_far_a_command_is(changes: dict[str, Any], issued: int, state: str) -> None:
    command = dataclasses.replace(_Open("c", "redrive", 20, 1, 1, None, None, None, None, timedelta()), **changes)
    assert command.state(issued, NOW) == state
    # nothing of Spark is asked
    commands = Commands(None, "redrive", None, IssuedCommands(issued={"c": issued}), 100, {"c": command, "d": command})  # type: ignore[arg-type]
    assert commands.progress(NOW) == {("redrive", state): (40, issued * 2)}


def test_a_rate_earns_with_time_and_time_away_makes_no_flood() -> None:
    def opened(rate: float | None) -> _Open:
        return _Open("c", "redrive", 10**6, 1, 1, None, rate, None, None, timedelta())

    paced = opened(2.0)
    assert [paced.earn(NOW, 1_000), paced.earn(NOW + timedelta(seconds=1.25), 1_000)] == [0, 2]
    assert paced.earn(NOW + timedelta(days=3), 1_000) == 20
    assert paced.earn(NOW + timedelta(days=4), 7) == 7
    slow = opened(1 / 3600)
    earned = [slow.earn(NOW + timedelta(seconds=5 * turn), 1_000) for turn in range(730)]
    assert earned[:719] == [0] * 719
    assert max(earned) == 1
    assert opened(None).earn(NOW, 1_000) == 1_000
