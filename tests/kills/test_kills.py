"""A sample of the matrix of kills: a step that no other test of .ci/run interrupts. And what the judge finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestration.demo.broker import Broker, BrokerSettings
from tests.dbt.harness import PROJECT
from tests.kills.judge import breaches
from tests.kills.run import installation
from tests.kills.service import OWN, value_of
from tests.kills.steps import STEPS, kills
from tests.loop.harness import Record
from tests.sessions import stop_session


@pytest.mark.long
def test_a_loop_killed_while_it_loads_rules_loses_nothing_and_sends_nothing_twice(tmp_path: Path) -> None:
    (chosen,) = [kill for kill in kills(1) if "rules" in kill.step.name]
    stop_session()
    with (
        Broker(BrokerSettings(tmp_path / "broker")) as broker,
        installation({"bootstrap.servers": broker.bootstrap_servers}, tmp_path / "home", PROJECT, factor=2) as installed,
    ):
        outcome = installed.seed([chosen])
    assert outcome.broken == []
    assert outcome.messages > 0


def test_each_seed_kills_at_each_step_in_its_own_way() -> None:
    assert {kill.step for kill in kills(7)} == {*STEPS}
    assert kills(7) == kills(7) != kills(8)
    assert {point for seed in range(50) for point in (kill.point for kill in kills(seed))} == {
        point for step in STEPS for point in step.points
    }


def record(key: bytes, delivery: str, topic: str = "orders-billing-retry") -> Record:
    headers = (*OWN, ("redrive-delivery", delivery.encode()), ("redrive-due", b"1000"))
    return Record(topic, 0, 0, 1_000, key, value_of(key), headers)


LIVED = [record(b"retried-0", str(number)) for number in range(4)]
DIED = [record(b"retried-0", "4", "orders.dlq")]


def test_the_judge_finds_nothing_where_nothing_is_wrong() -> None:
    fatal = record(b"fatal-1", "5", "orders.dlq")
    assert breaches({b"retried-0", b"fatal-1"}, LIVED, [*DIED, fatal], 0) == []
    # one of them is redriven, fails as often as its policy allows, and dies again
    again = [record(b"fatal-1", f"again {number}") for number in range(5)]
    assert breaches({b"retried-0", b"fatal-1"}, [*LIVED, *again], [*DIED, fatal, record(b"fatal-1", "6", "orders.dlq")], 1) == []


@pytest.mark.parametrize(
    ("finding", "retries", "dead"),
    [
        ("lost", LIVED, []),
        ("wrong", LIVED[:3], DIED),
        ("wrong", [*LIVED, record(b"retried-0", "5")], DIED),
        ("wrong", LIVED, [*DIED, record(b"another", "6", "orders.dlq")]),
        ("wrong", LIVED * 2, [*DIED, record(b"retried-0", "7", "orders.dlq")]),
        ("twice", [*LIVED[:3], LIVED[0]], DIED),
        ("early", [*LIVED[:3], replace(LIVED[3], timestamp=999)], DIED),
        ("altered", [*LIVED[:3], replace(LIVED[3], value=b"")], DIED),
        ("altered", LIVED, [replace(DIED[0], headers=DIED[0].headers[1:])]),
    ],
)
def test_the_judge_names_what_is_wrong(finding: str, retries: list[Record], dead: list[Record]) -> None:
    assert any(text.startswith(finding) for text in breaches({b"retried-0"}, retries, dead, 0))
