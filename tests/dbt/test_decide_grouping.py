"""The decide step decides the same, however its inputs are grouped into batches and runs."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from pyspark.sql import Row

from tests.dbt.decide_cases.case import ADOPTED, KNOWN_ALREADY, ORPHAN, REDRIVEN, RETRY, Input, dead_already
from tests.dbt.decisions_after import decisions_after
from tests.dbt.harness import Home, Report, Result, failed_again, order, pointer, report

pytestmark = pytest.mark.slow


def test_what_a_later_batch_says_of_a_message_is_decided_after_what_an_earlier_one_said(home: Home) -> None:
    """Each pair of batches is there before either is decided."""
    dead, sent, redriven = (
        home.append_reports(report("one-after-another", offset, error=error))[0]
        for offset, error in enumerate(("KeyError", "TimeoutError", "KeyError"))
    )
    home.decide()
    known = home.decisions()
    home.append_results(Result(known[sent], offset=700), Result(known[redriven], offset=701))
    home.later(minutes=5)
    before = home.batch
    expected: dict[str, tuple[str, str]] = {}

    def come(*inputs: tuple[Report | Result, tuple[str, str]]) -> None:
        for what, decision in inputs:
            input_ids = home.append_reports(what) if isinstance(what, Report) else home.append_results(what)
            expected.update(dict.fromkeys(input_ids, decision))
            home.later(seconds=1)

    come(
        # a redrive that is refused leaves the dead letter open: its failed send is answered by another one
        (order("redrive", known[dead], "failures-topic"), ("refused", "destination_is_a_source")),
        (Result(known[dead], "failed", error_name="_MSG_TIMED_OUT", error_kind="retriable"), ("dead_letter", "dead_letter_failed")),
        # what was discarded, and is succeeded by then, is no longer discarded
        (order("discard", known[dead]), ("discarded", "discard")),
        # a retry is recognised by where it lies; then, by its original coordinates, its message is known
        (failed_again(known[sent], 700), RETRY),
        (report("one-after-another", 1), KNOWN_ALREADY),
        # a message that is sent again has no new life cycle when it is reported anew
        (order("redrive", known[redriven]), REDRIVEN),
        (report("one-after-another", 2, error="KeyError"), KNOWN_ALREADY),
        # what was adopted is dead already, so that a failure after that begins another life cycle
        (dead_already(report("adopted-one-after-another")), ADOPTED),
        (report("adopted-one-after-another"), RETRY),
        # no copy can be known to lie there before it is
        (report(known[sent]["topic"], 702), ORPHAN),
    )
    # a result of a send that succeeded is no input
    home.append_results(Result(known[sent], offset=702))
    home.decide()
    decided = [(row["input_id"], (row["decision"], row["reason"])) for row in home.read("deliveries") if row["batch"] > before]
    assert sorted(decided) == sorted(expected.items())


@pytest.mark.parametrize("seed", range(1, 12))
def test_how_inputs_are_grouped_into_runs_changes_nothing(home: Home, seed: int) -> None:
    """Inputs that often are about the same few messages, in batches, each decided alone; then the same in random groups of batches."""
    chance = random.Random(seed)
    home.decide()
    home.later(days=1)
    before = home.batch
    world = World(chance, f"grouped-{seed}")
    rounds: list[list[int]] = []
    for _ in range(2):
        rounds.append([])
        decisions = [row for row in home.read("deliveries") if row["batch"] > before]
        for _ in range(3):
            inputs = [world.something(decisions) for _ in range(chance.randint(1, 3))]
            results = [one for one in inputs if isinstance(one, Result)]
            reports = [one for one in inputs if isinstance(one, Report)]
            if results:
                home.append_results(*results)
                rounds[-1].append(home.batch)
            if reports:
                home.append_reports(*reports)
                rounds[-1].append(home.batch)
            home.later(seconds=chance.choice([0, 1, 90]))
        for batch in rounds[-1]:
            home.decide(upto=batch)
    alone = decisions_after(home, before)
    assert len(alone) > 3
    for _ in range(1 if seed == 1 else 3):
        home.forget(before)
        for batches in rounds:
            ends = {batches[-1], *(batch for batch in batches if seed > 1 and chance.random() < 0.3)}
            for end in sorted(ends):
                home.decide(upto=end)
        assert decisions_after(home, before) == alone


@dataclass
class World:
    """Makes up what comes next: about few messages, so that inputs often meet."""

    chance: random.Random
    name: str
    offset: int = 1000
    closed: set[str] = field(default_factory=set)
    """The deliveries that have a result. No send has two."""

    def something(self, decisions: list[Row]) -> Input:
        """A report of a message, or something about a delivery."""
        named = [row for row in decisions if row["delivery_id"] is not None]
        sent = [row for row in named if row["kind"] is not None]
        kind = self.chance.choice(["report", "again", "result", "result", "order", "order", "order"])
        if kind == "again" and sent:
            return self._fails_again(self.chance.choice(sent))
        waiting = [row for row in sent if row["delivery_id"] not in self.closed]
        if kind == "result" and waiting:
            return self._result(self.chance.choice(waiting))
        if kind == "order" and named:
            what = self.chance.choice(
                [
                    *(("redrive", to) for to in (None, "failures-topic", "elsewhere")),
                    *((kind, None) for kind in ("discard", "restore", "purge", "note", "send_now", "cancel", "release")),
                ]
            )
            return order(what[0], self.chance.choice(named), what[1])
        return self._report()

    def _report(self) -> Report:
        topic, adopts = self.chance.choice([(self.name, False), (f"adopted-{self.name}", True), (f"adopted-{self.name}", False)])
        made = report(
            self.chance.choice([topic, topic, topic, "into-a-source"]),
            self.chance.randint(0, 1) if topic == self.name else 0,
            error=self.chance.choice(["TimeoutError", "KeyError"]),
            value=self.chance.choice([b"value", b"value", b"other"]),
        )
        return dead_already(made) if adopts else made

    def _fails_again(self, delivery: Row) -> Report:
        self.offset += 1
        again = failed_again(delivery, self.offset, error=self.chance.choice(["TimeoutError", "KeyError"]))
        by_original = report(delivery["original_topic"], delivery["original_offset"], key=delivery["key"], value=delivery["value"])
        return self.chance.choice(
            [again, again.with_headers(*pointer(delivery)), by_original, by_original.with_headers(*pointer(delivery))]
        )

    def _result(self, delivery: Row) -> Result:
        self.closed.add(delivery["delivery_id"])
        self.offset += 1
        if self.chance.random() < 0.5:
            return Result(delivery, offset=self.offset)
        return Result(delivery, "failed", error_name="MSG_SIZE_TOO_LARGE", error_kind=self.chance.choice(["poison", "retriable"]))
