"""A decide run without Spark: which statements are run, in which order, with which values; and that nothing is left behind."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError

from orchestration.settings import load_settings
from orchestration.tables.dbt import Compiled, Dbt, sql_digest
from orchestration.tables.decide_statements import DecideError, DecideRunner, DecideStatements, branch_of, filled, views_of
from orchestration.tables.interpreted import FEW_INPUTS, dbt_interpreted
from tests.unit.fake_spark import FakeSpark

PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("where batch > /*:watermark:*/0/*:*/", "where batch > 7"),
        ("where batch > /*:watermark:*/0/*:*/ and batch <= /*:upto:*/0/*:*/", "where batch > 7 and batch <= 9"),
        # without a value the default stays, and without a default nothing does
        ("where /*:unknown:*/false/*:*/", "where false"),
        ("from t /*:unknown:*//*:*/)", "from t )"),
        ("from t /*:as_of:*//*:*/ where", "from t version as of 5 where"),
        # a default may be anything: the name of a schema has its case
        ("from /*:inputs_of_this_run:*/Team_A.stg_inputs/*:*/x", "from keptx"),
        ("from /*:unknown:*/`Team-A`.stg_inputs/*:*/", "from `Team-A`.stg_inputs"),
        # other comments are not slots
        ("/* :watermark: */ 0 /*+ coalesce(1) */", "/* :watermark: */ 0 /*+ coalesce(1) */"),
    ],
)
def test_slots_are_filled(statement: str, expected: str) -> None:
    slots = {"watermark": "7", "upto": "9", "as_of": "version as of 5", "inputs_of_this_run": "kept"}
    assert filled(statement, slots) == expected


def model(name: str, *reads: str, materialized: str = "ephemeral") -> Compiled:
    parents = tuple(f"model.{parent}" for parent in reads)
    return Compiled(f"model.{name}", name, f"select {name}", parents, {"materialized": materialized}, "", ())


def test_a_view_comes_after_those_that_it_reads_and_each_comes_once() -> None:
    models = [
        model("rules", "seeds", materialized="table"),
        model("inputs", "events"),
        model("known", "inputs", "rules"),
        model("identified", "known", "inputs"),
        model("deliveries", "identified", "inputs", materialized="append_only"),
    ]
    views = views_of(models[-1], {one.id: one for one in models})
    assert list(views) == [f"__dbt__cte__{name}" for name in ("inputs", "known", "identified", "deliveries")]
    assert views["__dbt__cte__known"] == "select known"


STATEMENTS = DecideStatements(
    bounds=(
        "snapshot",
        "batches after /*:given_watermark:*/null/*:*/",
        "inputs of /*:inputs_of_this_run:*/x/*:*/",
        "answers /*:are_due:*/false/*:*/",
    ),
    views={
        "__dbt__cte__inputs_gathered": "gather /*:inputs_of_this_run:*/all/*:*/ after /*:watermark:*/0/*:*/",
        "__dbt__cte__decisions": "decide /*:due_from:*/0/*:*/ /*:are_due:*/false/*:*/",
        "__dbt__cte__deliveries": "deliver",
    },
    stages=frozenset({"__dbt__cte__inputs_gathered", "__dbt__cte__decisions"}),
    append="insert",
)

BATCHES = {"batches after 3": {"watermark": 4, "upto": 9}}


def run(spark: FakeSpark, **how: Any) -> list[str]:
    replace(STATEMENTS, _analysed={}).run(cast(Any, spark), 3, 9, None, **how)
    return spark.done


def test_bounds_are_found_the_models_created_and_the_rows_appended() -> None:
    spark = FakeSpark({**BATCHES, "inputs of __dbt__cte__inputs_gathered": {"inputs": 2, "are_due": True, "due_from": 5, "due_to": None}})
    assert run(spark) == [
        "snapshot",
        "batches after 3",
        "create __dbt__cte__inputs_analysed",
        "gather __dbt__cte__inputs_analysed after 4",
        "create __dbt__cte__inputs_gathered",
        "keep",
        "create __dbt__cte__inputs_gathered",
        "inputs of __dbt__cte__inputs_gathered",
        "answers true",
        "where batch <= 9",
        "create __dbt__cte__inputs_gathered",
        "decide 5 true",
        "create __dbt__cte__decisions",
        "keep",
        "create __dbt__cte__decisions",
        "deliver",
        "create __dbt__cte__deliveries",
        "insert",
        "drop __dbt__cte__inputs_analysed",
        "drop __dbt__cte__inputs_gathered",
        "drop __dbt__cte__decisions",
        "drop __dbt__cte__deliveries",
        "free",
        "free",
    ]


def test_what_only_an_empty_view_reads_is_not_created_once_its_columns_are_known() -> None:
    models = [
        model("inputs_gathered", "events"),
        model("known", "inputs_gathered"),
        model("shared", "inputs_gathered"),
        model("failures", "known", "shared"),
        model("rows", "shared"),
        model("deliveries", "failures", "rows", materialized="append_only"),
    ]
    by_id = {one.id: one for one in models}
    branch = branch_of("failures", "are_only_rows", models[-1], by_id)
    assert branch.reads == {"__dbt__cte__known"}
    views = {**views_of(models[-1], by_id), "__dbt__cte__inputs_gathered": STATEMENTS.views["__dbt__cte__inputs_gathered"]}
    statements = replace(STATEMENTS, views=views, stages=frozenset(), branches=(branch,), _schemas={}, _analysed={})
    rows = {**BATCHES, "inputs of __dbt__cte__inputs_gathered": {"inputs": 2, "are_only_rows": True}}
    first, second = FakeSpark(rows), FakeSpark(rows)
    for spark in (first, second):
        statements.run(cast(Any, spark), 3, 9, None)
    assert {"select known", "select failures", "select rows"} <= {*first.done}
    empty = "select cast(null as string) as input_id, cast(null as array<struct<key:string>>) as headers where false"
    assert [text for text in second.done if text.startswith("select ")] == ["select shared", empty, "select rows", "select deliveries"]
    assert "create __dbt__cte__failures" in second.done
    others = FakeSpark({**BATCHES, "inputs of __dbt__cte__inputs_gathered": {"inputs": 2, "are_only_rows": False}})
    statements.run(cast(Any, others), 3, 9, None)
    assert {"select known", "select failures"} <= {*others.done}


@pytest.mark.parametrize(("inputs", "code"), [(0, "false"), (FEW_INPUTS, "false"), (FEW_INPUTS + 1, "true")])
def test_code_is_generated_for_many_inputs_only(inputs: int, code: str) -> None:
    settings = {"spark.sql.codegen.wholeStage": "as before", "spark.sql.codegen.factoryMode": "as before"}
    spark = FakeSpark({**BATCHES, "inputs of __dbt__cte__inputs_gathered": {"inputs": 1}})
    during: list[str] = []
    spark.conf = SimpleNamespace(get=settings.__getitem__, set=settings.__setitem__)
    sql = spark.sql

    def noting(text: str) -> Any:
        during.append(settings["spark.sql.codegen.wholeStage"])
        return sql(text)

    spark.sql = noting  # type: ignore[method-assign]
    run(spark, inputs=inputs)
    assert set(during) == {code}
    assert set(settings.values()) == {"as before"}


def test_the_view_of_all_inputs_is_analysed_once() -> None:
    spark = FakeSpark({**BATCHES, "inputs of __dbt__cte__inputs_gathered": {"inputs": 0}})
    asked: list[str] = []
    table = spark.table
    spark.table = lambda name: asked.append(name) or table(name)  # type: ignore[method-assign, func-returns-value]
    statements = replace(STATEMENTS, _analysed={})
    for _ in range(2):
        statements.run(cast(Any, spark), 3, 9, None)
    assert asked.count("all") == 1


@pytest.mark.parametrize(
    ("found", "is_run"), [({}, False), ({"are_rows": False}, False), ({"are_rows": None}, False), ({"are_rows": True}, True)]
)
def test_a_query_that_would_find_nothing_is_not_run(found: dict[str, Any], is_run: bool) -> None:
    query = "\n  /*:only if are_rows:*/\n  rows after /*:watermark:*/0/*:*/"
    spark = FakeSpark({**BATCHES, "inputs of __dbt__cte__inputs_gathered": {"inputs": 1, **found}})
    replace(STATEMENTS, bounds=(*STATEMENTS.bounds, query), _analysed={}).run(cast(Any, spark), 3, 9, None)
    assert (filled(query, {"watermark": "4"}) in spark.done) is is_run


def test_without_inputs_nothing_is_appended() -> None:
    spark = FakeSpark({**BATCHES, "inputs of __dbt__cte__inputs_gathered": {"inputs": 0}})
    assert "insert" not in run(spark)
    assert spark.done[-2:] == ["drop __dbt__cte__inputs_gathered", "free"]


def test_the_first_run_of_a_process_computes_the_models_without_inputs_too_and_appends_nothing() -> None:
    spark = FakeSpark({**BATCHES, "inputs of __dbt__cte__inputs_gathered": {"inputs": 0}})
    run(spark, is_first=True)
    assert spark.done.index("create __dbt__cte__deliveries") < spark.done.index("compute")
    assert "insert" not in spark.done


def test_a_statement_that_fails_leaves_no_view_behind_and_is_reported_in_a_line() -> None:
    spark = FakeSpark(
        {**BATCHES, "inputs of __dbt__cte__inputs_gathered": {"inputs": 1}, "deliver": ValueError("no rule\n\tat org.Spark(1)")}
    )
    with pytest.raises(DecideError, match=r"^no rule$"):
        run(spark)
    assert spark.done[-4:] == ["drop __dbt__cte__inputs_gathered", "drop __dbt__cte__decisions", "free", "free"]


def test_a_spark_that_is_gone_is_no_decide_error() -> None:
    with pytest.raises(Py4JNetworkError):
        run(FakeSpark({"snapshot": Py4JNetworkError("answer from Java side is empty")}))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[DecideStatements]:
    """Each compilation."""
    compilations: list[DecideStatements] = []

    def count(dbt: Dbt) -> DecideStatements:
        dbt.parsed_digest = dbt.parsed_digest or sql_digest(dbt.settings)
        compilations.append(replace(STATEMENTS, _analysed={}))
        return compilations[-1]

    monkeypatch.setattr(DecideStatements, "compiled", count)
    return compilations


ANSWERS: dict[str, Any] = {**BATCHES, "inputs of __dbt__cte__inputs_gathered": {"inputs": 0}}


def test_what_was_compiled_serves_the_next_process_until_something_that_it_depends_on_changes(
    tmp_path: Path, compiled: list[DecideStatements], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(home=tmp_path, project=PROJECT)
    for _ in range(2):
        runner = DecideRunner(cast(Any, FakeSpark(ANSWERS)), "redrive", Dbt(settings))
        for _ in range(2):
            runner.run(3, 9, None)
        assert runner.has_run
    assert len(compiled) == 1
    DecideRunner(cast(Any, FakeSpark(ANSWERS)), "redrive", Dbt(settings.model_copy(update={"error_stack_bytes": 7}))).run(3, 9, None)
    assert len(compiled) == 2
    monkeypatch.setenv("REDRIVE_SHUFFLE_PARTITIONS", "5")
    DecideRunner(cast(Any, FakeSpark(ANSWERS)), "redrive", Dbt(settings)).run(3, 9, None)
    assert len(compiled) == 3


@pytest.mark.parametrize("text", ["", "{", "[]", '{"digest": 1}', "\x00"])
def test_a_file_that_is_damaged_is_made_again(tmp_path: Path, compiled: list[DecideStatements], text: str) -> None:
    settings = load_settings(home=tmp_path, project=PROJECT)
    settings.decide_statements.write_text(text)
    DecideRunner(cast(Any, FakeSpark(ANSWERS)), "redrive", Dbt(settings)).run(3, 9, None)
    DecideRunner(cast(Any, FakeSpark(ANSWERS)), "redrive", Dbt(settings)).run(3, 9, None)
    assert len(compiled) == 1


def test_a_table_with_other_columns_has_other_statements(tmp_path: Path, compiled: list[DecideStatements]) -> None:
    dbt = Dbt(load_settings(home=tmp_path, project=PROJECT))
    spark = FakeSpark({"snapshot": ValueError("too few columns")})
    runner = DecideRunner(cast(Any, spark), "redrive", dbt)
    for columns, compilations in ((["batch"], 1), (["batch"], 1), (["batch", "extra"], 2), (["extra", "batch"], 3)):
        spark.columns = columns
        with pytest.raises(DecideError):
            runner.run(3, 9, None)
        assert len(compiled) == compilations
    assert not runner.has_run


def test_the_append_is_compiled_with_the_columns_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = ["batch"]

    def invoke(_: object, arguments: list[str]) -> object:
        """As dbt, which asks the table for its columns."""
        node = SimpleNamespace(compiled_code=f"insert {' '.join(columns)}", unique_id="d", name="deliveries", resource_type="model")
        node.description, node.columns = "", {}
        node.depends_on, node.config = SimpleNamespace(nodes=[]), SimpleNamespace(to_dict=lambda: {"stages": [], "empty_if": {}})
        return SimpleNamespace(result=SimpleNamespace(results=[SimpleNamespace(node=node)]))

    monkeypatch.setattr(Dbt, "_runner", lambda _: None)
    monkeypatch.setattr(Dbt, "_invoke", staticmethod(invoke))
    dbt = Dbt(load_settings(home=tmp_path, project=PROJECT))
    assert DecideStatements.compiled(dbt).append == "insert batch"
    columns.append("extra")
    assert DecideStatements.compiled(dbt).append == "insert batch extra"


def test_what_was_compiled_of_files_that_have_changed_since_serves_nobody_else(
    tmp_path: Path, compiled: list[DecideStatements], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(home=tmp_path, project=PROJECT)
    old = Dbt(settings, parsed_digest="of the SQL before an upgrade")
    DecideRunner(cast(Any, FakeSpark(ANSWERS)), "redrive", old).run(3, 9, None)
    DecideRunner(cast(Any, FakeSpark(ANSWERS)), "redrive", Dbt(settings)).run(3, 9, None)
    assert len(compiled) == 2


def test_statements_are_interpreted_and_dbt_s_too_and_afterwards_all_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    spark = SimpleNamespace(conf=SimpleNamespace(get=settings.__getitem__, set=settings.__setitem__))
    for before in (None, "true"):
        monkeypatch.delenv("REDRIVE_CODEGEN", raising=False)
        if before:
            monkeypatch.setenv("REDRIVE_CODEGEN", before)
        with suppress(ZeroDivisionError), dbt_interpreted(cast(Any, spark)):
            assert set(settings.values()) == {"false", "NO_CODEGEN"}
            assert os.environ["REDRIVE_CODEGEN"] == "false"
            raise ZeroDivisionError
        assert set(settings.values()) == {"true", "FALLBACK"}
        assert os.environ.get("REDRIVE_CODEGEN") == before
