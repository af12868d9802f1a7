"""The decide step: what must be decided about what comes in, that nothing is lost or doubled on the way, and that it can be repeated."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from pyspark.sql import Row

from tests.dbt.decide_cases import adopted, contents, destinations, failures, orders
from tests.dbt.decide_cases.case import Case
from tests.dbt.harness import Home, Report, Result

CASES = [*failures.CASES, *orders.CASES, *adopted.CASES, *destinations.CASES, *contents.CASES]


@pytest.fixture(scope="module")
def decided(home: Home) -> dict[str, list[Row]]:
    """The decisions of each case, in the order of its inputs. All cases go through the same decide runs: each has its own topics."""
    input_ids: dict[str, list[str]] = {case.name: [] for case in CASES}
    for number in range(max(len(case.rounds) for case in CASES)):
        known = home.decisions()
        reports: list[tuple[str, Report]] = []
        results: list[tuple[str, Result]] = []
        for case in CASES:
            if number < len(case.rounds):
                for what in case.rounds[number]([known[input_id] for input_id in input_ids[case.name]]):
                    if isinstance(what, Report):
                        reports.append((case.name, what))
                    else:
                        results.append((case.name, what))
        if results:
            for (name, result), input_id in zip(results, home.append_results(*(result for _, result in results)), strict=True):
                input_ids[name] += [input_id] if result.outcome == "failed" else []
        if reports:
            for (name, _), input_id in zip(reports, home.append_reports(*(one for _, one in reports)), strict=True):
                input_ids[name].append(input_id)
        home.decide()
        home.later(minutes=5)
    known = home.decisions()
    return {name: [known[input_id] for input_id in its_input_ids] for name, its_input_ids in input_ids.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_decided(case: Case, decided: dict[str, list[Row]]) -> None:
    decisions = decided[case.name]
    assert tuple((row["decision"], row["reason"]) for row in decisions) == case.decided
    assert case.then(decisions), [row.asDict() for row in decisions]


# each takes its time: many kinds of inputs are in the first two decide runs, most in the first four
@pytest.mark.long
@pytest.mark.parametrize("by_hand_runs", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_dbt_run_by_hand_decides_the_same(home: Home, decided: dict[str, list[Row]], by_hand_runs: int) -> None:
    """The inputs of the first decide runs are decided again by a `dbt run`, the others by the loop: every column is the same."""
    first = min(row["batch"] for rows in decided.values() for row in rows)
    by_the_loop = [row for row in home.read("deliveries") if row["batch"] >= first]
    runs = {row["decide_run"] for row in by_the_loop}
    ends = sorted(max(row["batch"] for row in by_the_loop if row["decide_run"] == run) for run in runs)
    home.forget(first - 1)
    for end in ends[:by_hand_runs]:
        home.decide_by_hand(end)
    by_hand = [row for row in home.read("deliveries") if row["batch"] >= first]
    home.decide()
    everything = [row for row in home.read("deliveries") if row["batch"] >= first]
    assert _by_input(everything) == _by_input(by_the_loop)
    assert {row["decision"] for row in by_hand} >= {"retry", "redrive", "dead_letter", "orphan", "cancelled", "note"}


def _by_input(rows: Iterable[Row]) -> dict[str, dict[str, object]]:
    return {row["input_id"]: {name: value for name, value in row.asDict().items() if name != "decide_run"} for row in rows}


def test_every_input_has_one_decision_and_nothing_else_has(home: Home, decided: dict[str, list[Row]]) -> None:
    # other tests append rows without inputs
    first = min(row["batch"] for rows in decided.values() for row in rows)
    last = max(row["batch"] for rows in decided.values() for row in rows)

    def ours(table: str) -> list[Row]:
        return [row for row in home.read(table) if first <= row["batch"] <= last]

    inputs = [f"{row['topic_id']}/{row['partition']}/{row['offset']}/{row['index']}" for row in ours("events")]
    inputs += [f"{row['delivery_id']}@{row['batch']}" for row in ours("publish_results") if row["outcome"] == "failed"]
    assert sorted(row["input_id"] for row in ours("decisions")) == sorted(inputs)


def test_nothing_is_due_before_it_was_known(decided: dict[str, list[Row]]) -> None:
    assert [row for rows in decided.values() for row in rows if row["due_at"] < row["recorded_at"]] == []
