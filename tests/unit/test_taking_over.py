"""In which order a start takes Kafka and the tables, and for whom it waits in between. On real ones: tests/loop/test_takeover.py."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestration.clock import LoopClock
from orchestration.kafka.cluster import ClusterError
from orchestration.loop import takeover
from orchestration.loop.leadership import Leadership
from orchestration.loop.loop import Loop
from orchestration.loop.starting_point import StartingPoint
from orchestration.loop.takeover import TakeOver
from orchestration.settings import load_settings
from orchestration.tables.ledgers import AppendError, TakenOverError
from publisher import SupersededError
from publisher.errors import Concerns, ErrorKind, Trouble
from tests.log_events import logged
from tests.unit.loop_kit.steps import state_at

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def superseded(by: int) -> SupersededError:
    return SupersededError(Trouble(ErrorKind(-1, "SUPERSEDED", "fenced", Concerns.CONNECTION), "a newer one"), by)


class Ledgers:
    """Ledgers whose last row a loop of generation 4 wrote."""

    batch = 100

    def __init__(self, done: list[str], says_its_end_after: int | None, refuses: int) -> None:
        self.done, self._looks, self._refuses = done, says_its_end_after, refuses
        self.newest = 4
        self.generation = 0

    def has_ended(self, generation: int) -> bool:
        assert generation == self.newest
        if self._looks is None:
            return False
        self._looks -= 1
        return self._looks < 0

    def newest_generation(self) -> int:
        return self.newest

    def append(self, ledger: str, *_: object) -> int:
        if ledger == "ticks" and self._refuses:
            # another one was quicker
            self._refuses -= 1
            self.newest += 1
            raise AppendError("conflict")
        self.done.append(f"{ledger} {self.generation}")
        return 1


class Presence:
    def __init__(self, ended: bool) -> None:
        self.ended = ended

    def has_ended(self, _: int) -> bool:
        return self.ended

    def show(self, _: int) -> None:
        pass


@pytest.fixture
def take_over(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Takes over; what was done in which order, who is in charge in Kafka, and the loop."""

    def taken(
        *,
        kind: str = "tick",
        ended: bool = False,
        says_its_end_after: int | None = None,
        refuses: int = 0,
        kafka: Exception | None = None,
        overtaken_in: str | None = None,
    ) -> tuple[list[str], Leadership, Loop]:
        done: list[str] = []
        ledgers = Ledgers(done, says_its_end_after, refuses)
        loop = Loop(load_settings())
        loop.clock = LoopClock(None)
        nothing = cast(Any, None)
        charge = Leadership(loop.settings, nothing, nothing, loop.health, loop._superseded)
        loop.ledgers = cast(Any, ledgers)

        def seal(ledger: str, _: object) -> None:
            if ledger == overtaken_in:
                raise TakenOverError(ledgers.generation + 1, "another start was quicker")
            done.append(f"{ledger} {ledgers.generation}")

        stored = SimpleNamespace(
            ledgers=ledgers,
            clock=loop.clock,
            append=lambda state: ledgers.append("ticks"),
            seal=seal,
        )

        def read() -> StartingPoint:
            done.append("read")
            ledgers.generation = ledgers.newest + 1
            last = cast(Any, {"generation": ledgers.newest, "kind": kind})
            return StartingPoint(cast(Any, stored), nothing, state_at(loop.clock.now()), last)

        def fence() -> None:
            if kafka is not None:
                raise kafka
            done.append(f"kafka {ledgers.generation}")
            charge.in_charge = True

        monkeypatch.setattr(charge, "fence", fence)
        monkeypatch.setattr(takeover, "_LAST_ROWS", 0.5)
        monkeypatch.setattr(takeover, "_LAST_ROWS_POLL", 0.01)
        position = TakeOver(read, charge, cast(Any, Presence(ended)), loop.stopping).run()
        assert (position is None) == loop.stopping.is_set()
        return done, charge, loop

    return taken


def test_a_loop_whose_wall_clock_is_behind_says_since_when_it_sends_by_its_own() -> None:
    """Else a third loop would look for its sends only from the last row of the first one on, and would miss them."""
    behind = SimpleNamespace(wall=lambda: NOW)
    for unrecorded, says in ((NOW + timedelta(minutes=15), NOW), (NOW - timedelta(minutes=1), NOW - timedelta(minutes=1)), (None, NOW)):
        state = replace(state_at(NOW), unrecorded_since=unrecorded)
        row = takeover._begun(StartingPoint(cast(Any, SimpleNamespace(clock=behind)), cast(Any, None), state, None))
        assert (row.kind, row.unrecorded_since) == ("start", says)
        assert state.unrecorded_since == unrecorded, "this loop reads back from there"


TAKEN = ["ticks 5", "events 5", "publish_results 5"]


@pytest.mark.parametrize(
    ("before", "done", "waits"),
    [
        ({"kind": "end"}, ["read", "kafka 5", *TAKEN], False),
        ({"ended": True}, ["read", "kafka 5", *TAKEN], False),
        # what it has written in the meantime is read
        ({"says_its_end_after": 2}, ["read", "kafka 5", "read", *TAKEN], False),
        ({}, ["read", "kafka 5", "read", *TAKEN], True),
        # without Kafka the older one can't be stopped, and need not be waited for
        ({"kafka": ClusterError("no answer")}, ["read", *TAKEN], False),
        # Kafka is taken again, with the number that the tables will have
        (
            {"ended": True, "refuses": 1},
            ["read", "kafka 5", "read", "kafka 6", "ticks 6", "events 6", "publish_results 6"],
            False,
        ),
    ],
    ids=["ended in good order", "killed", "at work", "frozen", "without Kafka", "two starts at once"],
)
def test_kafka_is_taken_before_the_tables_and_who_lives_is_heard_out(
    take_over: Any, caplog: pytest.LogCaptureFixture, before: dict[str, Any], done: list[str], waits: bool
) -> None:
    with caplog.at_level(logging.INFO):
        found, charge, _ = take_over(**before)
        charge.log_state()
    assert found == done
    assert (len(logged(caplog, "older_loop_timed_out")) == 1) == waits
    assert charge.in_charge == ("kafka" not in before)
    (said,) = logged(caplog, "takeover_delayed" if "kafka" in before else "takeover_completed")
    assert said["instance"] == "default"
    if "kafka" in before:
        assert "not yet Kafka" in said["reason"]
    else:
        assert str(said["generation"]) == done[-1][-1]


def test_a_start_that_another_installation_has_the_name_of_takes_nothing(take_over: Any, caplog: pytest.LogCaptureFixture) -> None:
    found, _, loop = take_over(kafka=superseded(17))
    assert found == ["read"]
    assert loop.superseded_by == 17
    assert loop.stopping.is_set()
    (said,) = logged(caplog, "unknown_generation_found")
    assert "another installation has the same name" in said["reason"]


def test_a_start_beside_another_start_leaves_it_to_the_tables_who_is_first(take_over: Any, caplog: pytest.LogCaptureFixture) -> None:
    # the other one has the next number, and its row in the tables is about to be written
    found, charge, loop = take_over(kafka=superseded(5))
    assert found == ["read", *TAKEN]
    assert loop.superseded_by is None
    assert not charge.in_charge
    assert not logged(caplog, "unknown_generation_found")


@pytest.mark.parametrize(("ledger", "done"), [("events", []), ("publish_results", ["events 5"])])
def test_a_start_that_another_one_overtakes_between_its_rows_is_superseded(
    take_over: Any, caplog: pytest.LogCaptureFixture, ledger: str, done: list[str]
) -> None:
    found, _, loop = take_over(ended=True, overtaken_in=ledger)
    assert found == ["read", "kafka 5", "ticks 5", *done]
    assert loop.superseded_by == 6
    assert len(logged(caplog, "loop_superseded")) == 1
