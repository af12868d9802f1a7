"""A thousand messages with random fates, thirty ticks, some twenty crashes: no promise is broken. A rule that is wrong is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestration.demo.broker import Broker, BrokerSettings
from tests.dbt.harness import PROJECT, copy_of_the_project
from tests.sessions import stop_session
from tests.simulation.fates import fate
from tests.simulation.history import Came, Failed
from tests.simulation.model import broken
from tests.simulation.run import simulate


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Brokers without topics. The Spark session of a simulation ends with them."""
    with Broker(BrokerSettings(tmp_path / "broker")) as running:
        yield {"bootstrap.servers": running.bootstrap_servers}
        stop_session()


@pytest.mark.long
def test_a_thousand_fates_break_no_promise(kafka: dict[str, str], tmp_path: Path) -> None:
    outcome = simulate(kafka, tmp_path, PROJECT, seed=2)
    assert outcome.broken == []
    # about twenty
    assert sum(outcome.crashes.values()) >= 10


SABOTAGED = {
    "what was sent is open again": (
        "models/retry/5_send/deliveries_open.sql",
        "where outcome in {{ closing_outcomes() }}",
        "where outcome = 'held'",
        "came twice",
    ),
    "a busy consumer is charged": (
        "models/retry/3_schedule/attempts_counted.sql",
        "stated_attempts - 1, 0) + case when error_kind in ('backpressure', 'follows') then 0 else 1 end",
        "stated_attempts - 1, 0) + 1",
        "failures",
    ),
    "delays don't grow": (
        "macros/policies/backoff_delay_ms.sql",
        "power({{ policy }}.factor, greatest({{ failures }} - 1, 0))",
        "1",
        "before its delay",
    ),
}


@pytest.mark.parametrize("rule", SABOTAGED)
def test_a_rule_that_is_to_be_sabotaged_is_there(rule: str) -> None:
    path, text, _, _ = SABOTAGED[rule]
    assert (PROJECT / path).read_text(encoding="utf-8").count(text) == 1


@pytest.mark.slow
@pytest.mark.parametrize("rule", SABOTAGED)
def test_a_sabotaged_rule_is_found(rule: str, kafka: dict[str, str], tmp_path: Path) -> None:
    path, text, instead, finding = SABOTAGED[rule]
    project = copy_of_the_project(tmp_path)
    sql = (project / path).read_text(encoding="utf-8")
    assert sql.count(text) == 1
    (project / path).write_text(sql.replace(text, instead), encoding="utf-8")
    outcome = simulate(kafka, tmp_path, project, seed=1, messages=300, steps=10, crashes=3)
    assert any(finding in text for text in outcome.broken), outcome


def one(number: int) -> int:
    """The number of a message that fails once with an error that passes, of a topic with a policy that grows."""
    return next(
        n for n in range(number, 10_000) if (f := fate(1, n)).topic == "sim.doubled" and f.errors == ("TimeoutError",) and not f.lasts
    )


@pytest.mark.parametrize(
    ("record", "finding"),
    [
        (Came(False, "a", 2, 1_700, 1_700, True), None),
        (Came(False, "a", 2, 1_699, 1_700, True), "before its delay is over"),
        (Came(False, "a", 2, 1_700, 1_699, True), "1 ms early"),
        (Came(False, "a", 3, 1_700, 1_700, True), "attempt 3 after 1 failures"),
        (Came(False, "a", 2, 1_700, 1_700, False), "bytes"),
        (Came(True, "a", 1, 1_700, 1_700, True), "a dead came"),
    ],
)
def test_the_model_names_what_is_broken(record: Came, finding: str | None) -> None:
    number = one(0)
    found = broken([fate(1, number)], {number: [Failed("TimeoutError", 1_000, False), record]})
    assert [finding in text for text in found if finding] == ([True] if finding else [])
    assert bool(found) == bool(finding)


def test_the_model_knows_what_is_missing_and_what_comes_twice() -> None:
    number = one(0)
    failed, record = Failed("TimeoutError", 1_000, False), Came(False, "a", 2, 1_700, 1_700, True)
    assert "nothing came" in broken([fate(1, number)], {number: [failed]})[0]
    assert "twice" in broken([fate(1, number)], {number: [failed, record, record]})[0]
