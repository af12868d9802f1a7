"""The marts' views: a start makes them without analysing them, and they are what `dbt run` makes."""

from __future__ import annotations

from typing import Any

import pytest

from orchestration.tables.dbt import Column, Compiled, DbtError
from orchestration.tables.spark import default_catalog, java_identifier
from orchestration.tables.views import MARTS, create_views
from tests.dbt.harness import Home


def _described(home: Home, name: str) -> dict[str, Any]:
    """What the catalog says of a view.

    Without the blanks at the beginnings of lines; without whether a column may be null; without the session's namespace, which no
    view's text depends on, and which other modules set with `use`.
    """
    view = default_catalog(home.spark).loadView(java_identifier(home.spark, f"{home.schema}.{name}"))
    columns = home.spark.sql(f"describe {home.schema}.{name}").collect()
    return {
        "text": [line.strip() for line in view.query().splitlines()],
        "columns": [(row["col_name"], row["data_type"], row["comment"]) for row in columns],
        "names": [list(view.queryColumnNames()), list(view.columnAliases()), list(view.columnComments())],
        "comment": view.properties()["comment"],
    }


@pytest.mark.long
def test_marts_are_what_dbt_makes(home: Home) -> None:
    # Spark lists temporary views, too, and other modules leave theirs in the session
    marts = [row["viewName"] for row in home.spark.sql(f"show views in {home.schema}").collect() if not row["isTemporary"]]
    made = {name: _described(home, name) for name in marts}
    assert {"messages", "dead_letters", "sequences"} <= made.keys()
    # compares the types of all columns with the contracts, too
    home.run("run", MARTS)
    for name in marts:
        assert _described(home, name) == made[name], name


def _view(sql: str, *columns: Column, name: str = "replaced") -> Compiled:
    return Compiled(f"model.redrive.{name}", name, sql, (), {}, "A view.", columns)


def test_a_view_that_is_there_is_replaced(home: Home) -> None:
    create_views(home.spark, home.schema, [_view("select 1 as number, 'it' as word", Column("word", "string", "it's"))])
    assert [tuple(row) for row in home.read("replaced")] == [("it",)]
    create_views(home.spark, home.schema, [_view("select 1 as number", Column("number", "int", "one"))])
    assert [tuple(row) for row in home.read("replaced")] == [(1,)]
    home.spark.sql(f"drop view {home.schema}.replaced")


def test_a_view_that_the_catalog_refuses_is_named(home: Home) -> None:
    with pytest.raises(DbtError, match=r"^events: "):
        create_views(home.spark, home.schema, [_view("select 1 as number", Column("number", "int", "one"), name="events")])
