"""What an operator's command is made of, before anybody is asked: words, lists, records."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration.loop.commands import _LEAD, Commands, _Open
from orchestration.loop.issued import ISSUED_AHEAD, IssuedCommands
from orchestration.operators.commands import CommandError, CommandRequest, check_request, parse_assume_after, parse_at, parse_rate
from orchestration.operators.lists import Target, keep, kept
from orchestration.operators.sending import records, write
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
    with pytest.raises(CommandError, match="is not a rate; examples: 50/s"):
        parse_rate(text)


def test_times_have_units_and_zones() -> None:
    assert parse_assume_after("5m") == timedelta(minutes=5)
    assert parse_at("2026-03-01T12:00") == parse_at("2026-03-01T13:00+01:00") == NOW
    for parse, text in ((parse_assume_after, "5"), (parse_assume_after, "999999d"), (parse_at, "noon")):
        with pytest.raises(CommandError, match="is not a"):
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
        (CommandRequest("redrive", "why", " "), "--who must say something"),
        (CommandRequest("redrive", "why", "ada", canary=0), "--canary must be 1 to 1,000,000"),
        (CommandRequest("redrive", "why", "ada", canary=1_000_001), "--canary must be 1 to 1,000,000"),
        (CommandRequest("redrive", "why", "ada", at=datetime(1969, 12, 31, tzinfo=UTC)), "must be a time from 1970 to 2099"),
        (CommandRequest("redrive", "why", "ada", at=datetime(2100, 1, 1, tzinfo=UTC)), "must be a time from 1970 to 2099"),
        (CommandRequest("pause", "why", "ada", of="'; drop table events"), "is not the id of a command"),
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


def test_a_command_whose_reading_failed_is_taken_up_when_it_is_read_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # a loop before this one has issued 20 of its 50 messages
    commands = Commands(None, "redrive", None, IssuedCommands(issued={"c": 20}), 100)  # type: ignore[arg-type]
    row = {
        **dict.fromkeys(("of_command", "destination", "start_at", "canary", "assume_after_ms", "problem", "who", "reason")),
        "command": "c",
        "status": "complete",
        "what": "redrive",
        "listed": 50,
        "rate_per_second": 2.0,
        "first_batch": 7,
        "closed_batch": 7,
    }
    failures = [OSError("the table can't be read")]

    def next_due(*_: object) -> datetime:
        if failures:
            raise failures.pop()
        return NOW

    monkeypatch.setattr(Commands, "_next_due", next_due)
    with pytest.raises(OSError, match="can't be read"):
        commands._take_up(row, 0)  # type: ignore[arg-type]
    with caplog.at_level("INFO"):
        for _ in range(2):
            commands._take_up(row, 0)  # type: ignore[arg-type]
    assert commands.progress(NOW) == {("redrive", "running"): (50, 20)}
    assert [record.getMessage().split()[0] for record in caplog.records] == ["command_accepted"]


@pytest.mark.parametrize(
    ("failed_in", "held", "issued", "passes"),
    [
        # a loop that has started reads the command and its `resume` again, and has judged no canary yet
        ([None, 8], None, 2, True),
        # what failed after it was resumed, or in the same batch, was not what the operator knew of
        ([None, 9], None, 2, False),
        ([None, 10], None, 2, False),
        ([None, None], None, 2, False),
        # the loop that has judged them knows
        ([], "1 of 2 canaries failed", 2, True),
        # not all canaries are sent yet
        ([7], None, 1, False),
    ],
)
def test_a_resume_sends_the_rest_if_canaries_had_failed_before_it(
    monkeypatch: pytest.MonkeyPatch, failed_in: list[int | None], held: str | None, issued: int, passes: bool
) -> None:
    command = dataclasses.replace(opened(None), canary=2, held=held)
    commands = Commands(None, "redrive", None, IssuedCommands(issued={"c": issued}), 100, {"c": command})  # type: ignore[arg-type]
    monkeypatch.setattr("orchestration.loop.commands.canaries_of", lambda *_: [{"issued_in": 6, "failed_in": batch} for batch in failed_in])
    commands._control("resume", "c", "ada", 9)
    assert (command.passed, command.held) == (passes, None if passes else held)


@pytest.mark.parametrize("held", [None, "1 of 2 canaries failed"])
def test_a_resume_after_a_pause_does_not_pass_over_canaries(monkeypatch: pytest.MonkeyPatch, held: str | None) -> None:
    command = dataclasses.replace(opened(None), canary=2, held=held)
    commands = Commands(None, "redrive", None, IssuedCommands(issued={"c": 2}), 100, {"c": command})  # type: ignore[arg-type]
    monkeypatch.setattr("orchestration.loop.commands.canaries_of", lambda *_: [{"issued_in": 6, "failed_in": 8}])
    commands._control("pause", "c", "ada", 7)
    commands._control("resume", "c", "ada", 9)
    assert (command.paused, command.passed, command.held) == (False, False, held)


def test_a_resume_before_all_canaries_were_issued_passes_over_nothing_also_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    command = dataclasses.replace(opened(None), canary=2)
    commands = Commands(None, "redrive", None, IssuedCommands(issued={"c": 2}), 100, {"c": command})  # type: ignore[arg-type]
    canaries = [{"issued_in": 6, "failed_in": 8}, {"issued_in": 9, "failed_in": None}]
    monkeypatch.setattr("orchestration.loop.commands.canaries_of", lambda *_: canaries)
    commands._control("resume", "c", "ada", 9)
    assert not command.passed


@pytest.mark.parametrize(
    ("decisions", "passes"),
    [
        (["duplicate", "duplicate"], True),
        # maintenance has removed what was finished long ago
        (["duplicate"], True),
        ([], True),
        # its order is not decided yet
        (["duplicate", None], False),
    ],
)
def test_canaries_pass_when_all_that_are_left_have_succeeded(
    monkeypatch: pytest.MonkeyPatch, decisions: list[str | None], passes: bool
) -> None:
    command = dataclasses.replace(opened(None), canary=2)
    commands = Commands(None, "redrive", None, IssuedCommands(issued={"c": 2}), 100, {"c": command})  # type: ignore[arg-type]
    blank = {"message_id": None, "issued_in": 6, "failed_in": None, "sent": None, "has_settled": False}
    monkeypatch.setattr("orchestration.loop.commands.canaries_of", lambda *_: [{**blank, "decision": decision} for decision in decisions])
    commands._judge(command, None, NOW, complete=None)  # type: ignore[arg-type]
    assert command.passed == passes


def opened(rate: float | None) -> _Open:
    return _Open("c", "redrive", 10**6, 1, 1, None, rate, None, None, timedelta())


def issued_by(command: _Open, now: datetime, most: int = 1_000) -> list[float]:
    """Issues what is to be issued; returns the due times, in seconds after NOW."""
    due_times = command.due_times(now, command.wants(now, most))
    assert due_times is not None
    if due_times:
        command.next_due = due_times[-1] + timedelta(seconds=1 / (command.rate or 1))
    return [(due - NOW).total_seconds() for due in due_times]


def test_a_rate_gives_each_message_its_time_ahead_of_it() -> None:
    paced = opened(2.0)
    assert issued_by(paced, NOW) == [10 + place / 2 for place in range(21)]
    assert issued_by(paced, NOW + timedelta(seconds=1.25)) == [20.5, 21.0]
    assert issued_by(paced, NOW + timedelta(seconds=1.25)) == []


def test_time_away_makes_no_flood() -> None:
    paced = opened(2.0)
    issued_by(paced, NOW)
    away = timedelta(days=3)
    assert issued_by(paced, NOW + away) == [away.total_seconds() + 10 + place / 2 for place in range(21)]


def test_no_more_is_issued_at_once_than_a_tick_may() -> None:
    paced = opened(1_000.0)
    assert issued_by(paced, NOW, 3) == [10.0, 10.001, 10.002]
    assert issued_by(paced, NOW, 2) == [10.003, 10.004]


def test_a_slow_rate_keeps_its_distance() -> None:
    slow = opened(1 / 3600)
    due = [at for turn in range(1_500) for at in issued_by(slow, NOW + timedelta(seconds=5 * turn))]
    assert due == [10.0, 3610.0, 7210.0]


def test_what_a_slow_command_does_not_need_is_left_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    issued: dict[str, int] = {}

    def append(_: Commands, each: _Open, done: int, some: int, due_times: object, now: datetime) -> int:
        issued[each.command] = some
        return some

    monkeypatch.setattr(Commands, "_append", append)
    rates: dict[str, float | None] = {"at once": None, "fast": 5_000.0, "slow": 1.0, "slower": 0.1}
    commands = Commands(None, "redrive", None, IssuedCommands(), 10_000, _read_upto=1)  # type: ignore[arg-type]
    commands._open = {name: dataclasses.replace(opened(rate), command=name) for name, rate in rates.items()}
    commands.execute(NOW, came=False)
    assert issued == {"slower": 2, "slow": 11, "at once": 4_993, "fast": 4_994}


@given(rate=st.floats(0.001, 5_000), pauses=st.lists(st.floats(0.0, 60.0), min_size=1, max_size=30))
def test_no_two_messages_are_closer_than_the_rate_allows(rate: float, pauses: list[float]) -> None:
    paced = opened(rate)
    now, due = NOW, []
    for pause in pauses:
        now += timedelta(seconds=pause)
        issued = issued_by(paced, now, 50)
        assert all(_LEAD.total_seconds() <= at - (now - NOW).total_seconds() + 1e-6 for at in issued)
        assert all(at - (now - NOW).total_seconds() <= ISSUED_AHEAD.total_seconds() + 1e-6 for at in issued)
        due += issued
    # times have microseconds
    assert all(later - earlier >= 1 / rate - 2e-6 for earlier, later in itertools.pairwise(due))


def test_without_a_rate_nothing_has_a_time() -> None:
    assert opened(None).due_times(NOW, 1_000) is None


def test_a_command_that_kafka_does_not_take_leaves_no_transaction_open(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    class Producer:
        """Takes records, and gets no answer."""

        called: ClassVar[list[str]] = []

        def __getattr__(self, name: str) -> Callable[..., int]:
            def call(*_: object, **__: object) -> int:
                self.called.append(name)
                return 2

            return call

    monkeypatch.setattr("orchestration.kafka.clients.producer", lambda *_: Producer())
    with pytest.raises(CommandError, match="no answer within 30 s"):
        write(settings, "command", [b"part", b"closing"])
    assert Producer.called[-2:] == ["flush", "abort_transaction"]
