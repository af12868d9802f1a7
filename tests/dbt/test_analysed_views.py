"""Views that are analysed once show what the tables contain now, and what the views say now."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import AnalysisException

from orchestration.tables.analysed_views import AnalysedViews
from orchestration.tables.rows import collected
from tests.dbt.harness import Home

pytestmark = pytest.mark.long


@pytest.fixture
def asked(home: Home) -> Iterator[AnalysedViews]:
    """With a table and a view over a view over it."""
    home.spark.sql(f"create table {home.schema}.stock (item string, number int) using iceberg")
    home.spark.sql(f"create view {home.schema}.counted as select item, sum(number) as number from {home.schema}.stock group by item")
    home.spark.sql(f"create view {home.schema}.many as select item from {home.schema}.counted where number > 1")
    yield AnalysedViews(home.spark.newSession(), home.schema)
    for kind, name in (("view", "many"), ("view", "counted"), ("table", "stock")):
        home.spark.sql(f"drop {kind} if exists {home.schema}.{name}")


def said(asked: AnalysedViews, statement: str = "select * from many order by 1") -> list[tuple[object, ...]]:
    return [tuple(row) for row in asked.ask(statement, collected)]


def test_rows_that_came_since_are_seen(home: Home, asked: AnalysedViews) -> None:
    assert said(asked) == []
    home.spark.sql(f"insert into {home.schema}.stock values ('a', 2), ('b', 1)")
    assert said(asked) == [("a",)]
    home.spark.sql(f"insert into {home.schema}.stock values ('b', 1)")
    assert said(asked) == [("a",), ("b",)]
    home.spark.sql(f"create or replace table {home.schema}.stock using iceberg as select 'c' as item, 3 as number")
    assert said(asked) == [("c",)]


def test_a_view_is_analysed_once(home: Home, asked: AnalysedViews) -> None:
    rules = home.spark._jvm.org.apache.spark.sql.catalyst.rules.RuleExecutor  # type: ignore[union-attr]

    def loads() -> int:
        """How often Iceberg's rule has put a view's query in its place."""
        rules.resetMetrics()
        assert said(asked, "select * from many") == []
        (line,) = (line for line in rules.dumpTimeSpent().splitlines() if "analysis.ResolveViews" in line)
        return int(line.split()[-3])

    assert loads() > 0
    assert loads() == 0


def test_a_view_that_was_replaced_is_analysed_again_and_so_are_those_over_it(home: Home, asked: AnalysedViews) -> None:
    home.spark.sql(f"insert into {home.schema}.stock values ('a', 2), ('b', 1)")
    assert said(asked) == [("a",)]
    home.spark.sql(f"create or replace view {home.schema}.counted as select upper(item) as item, 9 as number from {home.schema}.stock")
    assert said(asked) == [("A",), ("B",)]


def test_a_table_that_was_made_anew_is_read(home: Home, asked: AnalysedViews) -> None:
    assert said(asked) == []
    home.spark.sql(f"drop table {home.schema}.stock purge")
    home.spark.sql(f"create table {home.schema}.stock using iceberg as select 'd' as item, 4 as number")
    assert said(asked) == [("d",)]


def test_a_view_that_is_gone_is_missed(home: Home, asked: AnalysedViews) -> None:
    assert said(asked) == []
    home.spark.sql(f"drop view {home.schema}.many")
    with pytest.raises(AnalysisException, match="many"):
        said(asked)


def test_names_with_a_schema_mean_the_catalog(home: Home, asked: AnalysedViews) -> None:
    assert said(asked, f"select item from {home.schema}.many") == []
    assert not any(row["isTemporary"] for row in asked.spark.sql("show views").collect())
    assert said(asked) == []
    assert [row["viewName"] for row in asked.spark.sql("show views").collect() if row["isTemporary"]] == ["many"]
