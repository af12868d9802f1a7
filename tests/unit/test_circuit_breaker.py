"""Which decision answers a probe."""

from __future__ import annotations

import itertools

import pytest
from pyspark.sql import Row

from orchestration.loop.circuit_breaker import answers_to_probes

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
