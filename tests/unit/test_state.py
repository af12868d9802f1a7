"""The state is exactly a row of `ticks`, and what a step did changes it in one place."""

from __future__ import annotations

import ast
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import yaml
from hypothesis import given
from hypothesis import strategies as st

from orchestration.loop.circuit_breaker import CircuitBreaker, Probe
from orchestration.loop.consumer_progress import Awaited, Place
from orchestration.loop.health import DECIDE, KAFKA, Health, Reason
from orchestration.loop.issued import IssuedCommands
from orchestration.loop.outbox_positions import OutboxPosition
from orchestration.loop.positions import SourceOffsets
from orchestration.loop.reports import turn_of
from orchestration.loop.state import LoopState
from orchestration.loop.steps import Sent, StepReport, StepResult, Tick, later, reduce
from orchestration.loop.window import PausedDestination, SendWindow
from orchestration.settings import load_settings
from tests.unit.loop_kit.steps import state_at

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)

numbers = st.integers(0, 2**63 - 1)
batches = st.integers(1, 2**63 - 1)
names = st.text(min_size=1, max_size=20)
moments = st.integers(0, 4_000_000_000_000).map(lambda ms: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms))
reasons = st.builds(Reason, names, st.none() | names)
places = st.builds(Place, names, names, st.integers(0, 1000))
paused = st.builds(PausedDestination, reasons, moments, st.integers(1, 60_000).map(lambda ms: timedelta(milliseconds=ms)), floor=moments)
probes = st.builds(Probe, names, moments, moments, st.none() | names, names, st.integers(0, 1000), numbers)
breakers = st.builds(
    CircuitBreaker,
    opened_at=moments,
    error_class=st.none() | names,
    next_probe=moments,
    floor=moments,
    closed_at=st.none() | moments,
    probes=st.integers(0, 1000),
    probe=st.none() | probes,
)
# a topic's id is Kafka's, or `name:` and a legal name, perhaps with the batch of a gap
topic_ids = st.from_regex(r"\A(name:[A-Za-z0-9._-]{1,20}|[A-Za-z0-9_-]{22})(~[0-9]{1,9})?\Z")
partitions = st.builds(lambda topic_id, number: f"{topic_id}/{number}", topic_ids, st.integers(0, 1000))
counts = st.dictionaries(names, numbers, max_size=3)

states = st.builds(
    LoopState,
    tick=numbers,
    kind=st.sampled_from(["start", "tick", "end"]),
    generation=batches,
    instance=names,
    watermark=numbers,
    loop_time=moments,
    window=st.builds(SendWindow, moments, st.dictionaries(names, paused, max_size=3)),
    slots=st.integers(1, 100),
    offsets=st.builds(SourceOffsets, st.dictionaries(partitions, numbers, max_size=4), st.frozensets(names, max_size=3)),
    commands=st.builds(IssuedCommands, numbers, st.dictionaries(names, numbers, max_size=3)),
    feed_batch=st.none() | numbers,
    unrecorded_since=moments,
    awaited_batch=numbers,
    breakers=st.dictionaries(names, breakers, max_size=3),
    settled=st.dictionaries(places, numbers, max_size=3),
    outboxes=st.dictionaries(names, st.builds(OutboxPosition, numbers, numbers, st.booleans()), max_size=3),
    awaited=st.lists(st.builds(Awaited, places, numbers, numbers), max_size=3).map(tuple),
    counts=counts,
    step_ms=counts,
)


@given(states)
def test_a_row_of_ticks_is_the_whole_state(state: LoopState) -> None:
    assert LoopState.from_row(state.as_row()) == state


def test_a_row_has_the_columns_of_the_table() -> None:
    models = yaml.safe_load((load_settings().project / "models" / "ledgers" / "ticks.yml").read_text(encoding="utf-8"))["models"]
    (columns,) = ([column["name"] for column in model["columns"]] for model in models if model["name"] == "ticks")
    # each append adds the last two
    assert [*state_at(NOW).as_row(), "batch", "recorded_at"] == columns


def test_a_row_of_an_earlier_version_is_read() -> None:
    row: dict[str, Any] = {
        "tick": 7, "kind": "tick", "generation": 3, "instance": "default", "watermark": 41, "floor": NOW, "loop_time": NOW,
        "next_offsets": {"AAAAAAAAAAAAAAAAAAAAAA/0": 12, "name:old~9/3": 4, "source:a/b": 1, "source:reports": 1, "announced": 40,
                         "awaited": 39, "commands": 30, "command:0b9c": 5},
        "started_sources": None, "commands_since": None, "commands_issued": None, "feed_batch": None, "awaited_batch": None,
        "paused_destinations": {
            "gone": {"until": NOW, "pause_ms": 4000, "floor": NOW, "why": "there is no such topic", "error": None}
        },
        "circuit_breakers": None, "settled": None, "slots": 2, "counts": None, "step_ms": None,
        "awaited": [{"consumer_group": "billing", "topic": "retries", "partition": 0, "sent": 10, "settled": 4}],
    }  # fmt: skip
    state = LoopState.from_row(row)
    assert state.offsets == SourceOffsets({"AAAAAAAAAAAAAAAAAAAAAA/0": 12, "name:old~9/3": 4}, frozenset({"a/b", "reports"}))
    assert (state.feed_batch, state.awaited_batch, state.commands) == (40, 39, IssuedCommands(30, {"0b9c": 5}))
    assert state.awaited == (Awaited(Place("billing", "retries", 0), 10, 4),)
    one = state.window.paused["gone"]
    assert (one.pause, one.reason) == (timedelta(seconds=4), Reason("there is no such topic"))
    # it did not note what may have no result: a loop that was killed has sent it minutes before at the most
    assert state.unrecorded_since == NOW - timedelta(minutes=10)
    assert LoopState.from_row({**row, "kind": "end"}).unrecorded_since is None
    assert LoopState.from_row(state.as_row()) == state
    # the version between them had another key for the feed
    row["next_offsets"]["decision_feed"] = row["next_offsets"].pop("announced")
    assert LoopState.from_row(row) == state


def test_the_reducer_adds_what_steps_did_and_says_what_went_wrong() -> None:
    health = Health(lambda: NOW)
    health.failed(KAFKA, Reason("no answer"))
    state, tick = state_at(NOW), Tick()
    for number in (2, 3):
        report = StepReport(state)
        report.count("events", number)
        report.step_ms["intake"] = number * 10
        report.change(watermark=number)
        report.recovered(KAFKA)
        report.failed(DECIDE, Reason("no space left on device"))
        report.has_more = number == 2
        report.unread = frozenset({"orders"}) if number == 2 else None
        state, tick = reduce(state, tick, report.result(), health)
    assert (state.watermark, state.counts, state.step_ms) == (3, {"events": 5}, {"intake": 50})
    assert (dict(tick.counts), tick.has_more, tick.unread, tick.did_something) == ({"events": 5}, True, frozenset({"orders"}), True)
    assert list(health) == [DECIDE]


def test_a_tick_begins_with_nothing_done() -> None:
    done = state_at(NOW, counts={"events": 1}, step_ms={"intake": 5}, settled={Place("g", "t", 0): 4})
    began = done.began()
    assert (began.tick, began.kind, began.counts, began.step_ms, began.settled) == (2, "tick", {}, {}, {})
    # what a start has done is part of its first tick
    first = replace(done, tick=0).began()
    assert (first.tick, first.counts, first.step_ms, first.settled) == (1, {"events": 1}, {"intake": 5}, {})


def test_of_two_lanes_the_worse_lateness_is_shown() -> None:
    assert later(None, None) is None
    assert later((5, 9), None) == later(None, (5, 9)) == (5, 9)
    assert later((5, 100), (20, 30)) == (20, 100)
    assert Tick(sent={"timed": Sent(3, (5, 100)), "bulk": Sent(1, (20, 30))}).lateness_ms == (20, 100)
    assert Tick(sent={"timed": Sent()}).lateness_ms is None


def test_what_each_lane_has_sent_adds_up_over_the_steps_of_a_tick() -> None:
    tick = Tick()
    for lane, sent in (("timed", Sent(3, (5, 100))), ("bulk", Sent(2, (7, 7))), ("bulk", Sent(4, (1, 9)))):
        _, tick = reduce(state_at(NOW), tick, StepResult(state_at(NOW), sent={lane: sent}), Health(lambda: NOW))
    assert tick.sent == {"timed": Sent(3, (5, 100)), "bulk": Sent(6, (7, 9))}


def test_what_a_tick_has_ordered_itself_is_not_undecided_for_the_metrics() -> None:
    nothing = cast(Any, SimpleNamespace(lag=dict))

    def measured(since: datetime | None) -> int:
        state = state_at(NOW)
        if since is not None:
            state = replace(state, window=state.window.awaiting(3, since))
        return turn_of(state, NOW, 1, Health(lambda: NOW), nothing, {}, 0).undecided

    assert (measured(None), measured(NOW), measured(NOW - timedelta(seconds=1))) == (0, 0, 3)


def test_the_loop_writes_its_state_where_it_begins_and_in_the_reducer_alone() -> None:
    writers: set[tuple[str, str]] = set()
    for path in (Path(__file__).parents[2] / "orchestration").rglob("*.py"):
        for function in (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)):
            for target in (one for node in ast.walk(function) if isinstance(node, ast.Assign) for one in ast.walk(node.targets[0])):
                if isinstance(target, ast.Attribute) and target.attr == "state" and isinstance(target.ctx, ast.Store):
                    writers.add((path.name, function.name))
    # a step's own report of what it changes, which it returns
    reports = {("steps.py", "change"), ("recovery.py", "_read_again"), ("undecided.py", "find")}
    assert writers == {("loop.py", name) for name in ("_read", "start", "_run_tick", "_apply")} | reports
