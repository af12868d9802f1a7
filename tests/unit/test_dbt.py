"""dbt in this process: what it is spared, and that the outcome is the same."""

from __future__ import annotations

import dbt.compilation
import pytest
from dbt.artifacts.resources.v1.components import InjectedCTE

from orchestration.tables.dbt import _inject_ctes_into_sql, injected

CTES = [
    InjectedCTE(id="one", sql=" __dbt__cte__one as (\nselect 1 as n\n)"),
    InjectedCTE(id="two", sql=" __dbt__cte__two as (\nselect 2\n)"),
]

MODELS = {
    "with": "with a as (select * from __dbt__cte__one) select * from a",
    "no with": "select * from __dbt__cte__one",
    "a comment before": "-- with what: a comment\n\nwith\n\na as (\n    select 1\n)\n\nselect * from a\n",
    "a comment and no with": "/* with */ select 'with' as word -- with\n",
    "recursive": "with recursive a as (select 1) select * from a",
    "a word that begins so": "withdrawals as (select 1)",
    "no blank after": "with/* a */a as (select 1) select * from a",
    "a comment with a comment's end": "-- */ with\nwith a as (select 1) select * from a",
    "upper case": "WITH a AS (SELECT 1) SELECT * FROM a",
}


@pytest.mark.parametrize("ctes", [[], CTES[:1], CTES], ids=len)
@pytest.mark.parametrize("sql", MODELS.values(), ids=MODELS)
def test_models_are_put_before_another_as_dbt_does_it(sql: str, ctes: list[InjectedCTE]) -> None:
    assert injected(sql, ctes) == _inject_ctes_into_sql(sql, ctes)


@pytest.mark.parametrize("sql", [MODELS["with"], MODELS["a comment before"]])
def test_a_model_like_ours_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    monkeypatch.setattr("sqlparse.parse", lambda _: pytest.fail("dbt looks for the place itself"))
    assert dbt.compilation.inject_ctes_into_sql(sql, CTES).count("__dbt__cte__") > len(CTES) - 1
