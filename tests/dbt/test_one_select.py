"""What `redrive sql` takes for one select that reads, as Spark parses it. What it knows by the text alone: tests/unit/test_query.py."""

from __future__ import annotations

import pytest

from orchestration.settings import load_settings
from orchestration.tables.query import QueryError, Tables
from tests.dbt.harness import PROJECT, Home


def ask(home: Home, statement: str) -> int:
    return len(Tables(load_settings(home=home.path, project=PROJECT)).select(statement, 10).rows)


@pytest.mark.parametrize(
    "condition",
    [
        "recorded_at < timestamp '1000-03-01 12:00:00'",
        "recorded_at < date '1000-03-01'",
        "recorded_at < timestamp '1000-01-01 00:00:00' - interval '1' hour",
        "key = x'ff' and detail = 'InsertIntoStatement'",
    ],
)
def test_literals_of_all_types_can_be_used(home: Home, condition: str) -> None:
    assert ask(home, f"select * from events where {condition}") == 0


@pytest.mark.parametrize(
    "statement",
    [
        "with one as (select 1 as n) insert into ticks (batch) select n from one",
        "with one as (select 1 as n) update ticks set batch = 1",
        "with one as (select 1 as n) delete from ticks",
        "with one as (select 1 as n) merge into ticks using one on batch = n when matched then delete",
    ],
)
def test_what_begins_like_a_select_and_writes_is_refused(home: Home, statement: str) -> None:
    before = home.spark.table(f"{home.schema}.ticks").count()
    with pytest.raises(QueryError, match="this one would write"):
        ask(home, statement)
    assert home.spark.table(f"{home.schema}.ticks").count() == before
