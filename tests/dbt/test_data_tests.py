"""dbt's data tests find what they are there to find, in tables of a few rows, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.dbt.harness import PROJECT, Home

TESTS = PROJECT / "dbt_project" / "data_tests"
COLUMNS = {
    "attempts": "message_id string, life_cycle int, attempt int, source string, decision string, error_kind string",
    "sources": "source string, trusts_counts string",
    "events": "topic_id string, partition int, offset bigint, index int, batch bigint",
    "decisions": "input_id string, batch bigint, decision string, prior_delivery string",
    "messages": "message_id string, state string",
    "dead_letters": "message_id string, offset bigint, decision string",
    "publish_results": "delivery_id string, outcome string, due_at bigint, sent_at bigint, found_by string",
    "retry_policies_read": "policy string, definition string, not_understood string",
}
# times, which the data test only compares
AT, BEFORE = 1_000, 999


def attempts(message: str, *numbers: int, source: str = "ours", life_cycle: int = 1, **given: str) -> list[tuple[Any, ...]]:
    """Failed attempts of a message."""
    row = {"decision": "retry", "error_kind": "retriable", **given}
    return [(message, life_cycle, number, source, row["decision"], row["error_kind"]) for number in numbers]


Rows = dict[str, list[tuple[Any, ...]]]
CASES: dict[str, tuple[Rows, list[str]]] = {
    "assert_no_attempt_is_skipped_or_counted_twice": (
        {
            "sources": [("ours", "false"), ("theirs", "TRUE")],
            "attempts": [
                *attempts("in order", 1, 2, 3),
                *attempts("in order", 1, life_cycle=2),
                *attempts("skipped", 1, 3),
                *attempts("twice", 1, 2, 2),
                *attempts("skipped and twice", 1, 3, 3),
                *attempts("begins late", 2, 3),
                *attempts("of no source", 2, source="nobody's"),
                *attempts("trusted", 4, 5, source="theirs"),
                *attempts("trusted, then ours", 4, source="theirs"),
                *attempts("trusted, then ours", 5),
                *attempts("trusted, and skipped", 4, 6, source="theirs"),
                *attempts("busy", 1, 2),
                *attempts("busy", 2, 2, error_kind="backpressure"),
                *attempts("following", 1),
                *attempts("following", 0, 0, error_kind="follows"),
                *attempts("of an order about nothing", 7, decision="orphan"),
            ],
        },
        ["begins late", "of no source", "skipped", "skipped and twice", "trusted, and skipped", "twice"],
    ),
    "assert_every_event_has_one_decision": (
        {
            "events": [("reports", 0, offset, 0, 5) for offset in range(3)] + [("reports", 0, 3, 0, 7)],
            "decisions": [(f"reports/0/{offset}/0", 5, "retry", None) for offset in (0, 2, 2)],
        },
        ["reports/0/1/0", "reports/0/2/0"],
    ),
    "assert_no_delivery_has_two_successors": (
        {
            "decisions": [
                *[(f"reports/0/0/{n}", 5, "retry", "failed twice") for n in range(2)],
                ("reports/0/1/0", 5, "retry", "failed once"),
                ("reports/0/1/1", 5, "duplicate", "failed once"),
                *[(f"reports/0/2/{n}", 5, "retry", None) for n in range(2)],
            ]
        },
        ["failed twice"],
    ),
    "assert_no_message_is_dead_without_a_dead_letter": (
        {
            "messages": [(name, "dead") for name in ("sent", "parked", "unacknowledged", "forgotten")] + [("alive", "waiting")],
            "dead_letters": [("sent", 7, "dead_letter"), ("parked", None, "parked"), ("unacknowledged", None, "dead_letter")],
        },
        ["forgotten", "unacknowledged"],
    ),
    "assert_nothing_is_sent_early": (
        {
            "publish_results": [
                ("early", "delivered", AT, BEFORE, None),
                ("in time", "delivered", AT, AT, None),
                ("refused", "failed", AT, BEFORE, None),
                ("found in its topic", "delivered", AT, BEFORE, "read_back"),
            ]
        },
        ["early"],
    ),
    "assert_every_policy_can_be_read": (
        {"retry_policies_read": [("good", "fixed 1 s", None), ("bad", "fixed 1 parsec", "fixed 1 parsec")]},
        ["bad"],
    ),
}


@pytest.fixture
def spark(home: Home) -> Iterator[SparkSession]:
    """Its views of the schema `global_temp` are dropped at the end."""
    yield home.spark
    for name in COLUMNS:
        home.spark.catalog.dropGlobalTempView(name)


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_found(name: str, home: Home, spark: SparkSession) -> None:
    tables, found = CASES[name]
    for table, rows in tables.items():
        spark.createDataFrame(rows, COLUMNS[table]).createGlobalTempView(table)
    jinja = (TESTS / f"{name}.sql").read_text(encoding="utf-8")
    failing = spark.sql(home.compiled(re.sub(r"\{\{ ref\('(\w+)'\) \}\}", r"global_temp.\1", jinja)))
    assert sorted(row[0] for row in failing.select(failing.columns[0]).collect()) == found


def test_each_has_a_case() -> None:
    assert {path.stem for path in TESTS.glob("*.sql")} == set(CASES)
