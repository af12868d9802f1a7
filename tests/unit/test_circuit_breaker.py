"""Which decision answers a probe, and what consumers read of a circuit breaker."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime

import pytest
from pyspark.sql import Row

from orchestration.loop.circuit_breaker import CircuitBreaker, answers_to_probes, gate_record_of, record_of

RETRY = Row(answered="a#1", decision="retry", reason="blocking")
DEAD = Row(answered="a#1", decision="dead_letter", reason="exhausted")
REPORTED_TWICE = Row(answered="a#1", decision="duplicate", reason="answered_already")
REFUSED = Row(answered="a#1", decision="refused", reason="destination_is_a_source")
WRONG_ORDER = Row(answered="a#1", decision="refused", reason="wrong_kind_of_delivery")
OF_NO_PROBE = Row(answered=None, decision="retry", reason="blocking")


@pytest.mark.parametrize(
    ("rows", "answer"),
    [
        ([RETRY], RETRY),
        ([DEAD], DEAD),
        ([RETRY, REPORTED_TWICE], RETRY),
        ([DEAD, REPORTED_TWICE, OF_NO_PROBE], DEAD),
        ([REFUSED], REFUSED),
        ([REFUSED, RETRY, REPORTED_TWICE], RETRY),
        ([REFUSED, DEAD], DEAD),
        ([WRONG_ORDER, RETRY], RETRY),
        ([WRONG_ORDER, REPORTED_TWICE], None),
        ([OF_NO_PROBE], None),
        ([], None),
    ],
)
def test_a_probe_has_one_answer_in_whichever_order_rows_come(rows: list[Row], answer: Row | None) -> None:
    expected = {} if answer is None else {"a#1": answer}
    assert [answers_to_probes(order) for order in itertools.permutations(rows)] == [expected] * len(list(itertools.permutations(rows)))


OPENED, CLOSED = (datetime(2026, 3, 1, hour, tzinfo=UTC) for hour in (12, 13))
OPENED_AT, CLOSED_AT = "2026-03-01T12:00:00.000+00:00", "2026-03-01T13:00:00.000+00:00"
WHERE = {"consumer_group": "billing", "topic": "orders", "partition": 3, "error_class": "E", "probes": 0}


@pytest.mark.parametrize(
    ("closed_at", "record", "of_before"),
    [
        (None, {"state": "open", "opened_at": OPENED_AT}, {"state": "closed", "since": OPENED_AT}),
        (
            CLOSED,
            {"state": "closed", "opened_at": OPENED_AT, "closed_at": CLOSED_AT},
            {"state": "open", "since": OPENED_AT, "opened_at": CLOSED_AT},
        ),
    ],
    ids=["it holds back", "it lets pass"],
)
def test_an_open_circuit_breaker_holds_back_and_is_a_closed_gate_for_consumers_of_before(
    closed_at: datetime | None, record: dict[str, object], of_before: dict[str, object]
) -> None:
    breaker = CircuitBreaker(OPENED, "E", OPENED, OPENED, closed_at=closed_at)
    key = "billing:orders/3"
    assert breaker.is_open == (closed_at is None)
    assert json.loads(record_of(key, breaker)) == {"breaker_key": key, **WHERE, **record}
    assert json.loads(gate_record_of(key, breaker)) == {"scope": key, **WHERE, **of_before}
