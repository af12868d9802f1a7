"""The statements of a decide run. dbt compiles the models once, and each run fills the slots of the compiled SQL with its bounds.

A `dbt run` decides the same with the same SQL (macros/decide/read_slots.sql), and spends more than a second on itself each time. It makes
one statement of all models, which Spark has to analyse, optimize and plan as a whole. Here each model is a temporary view, and the rows of
most are computed once and kept in memory: docs/decisions/0052.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from orchestration.files import write_atomically
from orchestration.tables.dbt import Compiled, Dbt, sql_digest
from orchestration.tables.interpreted import FEW_INPUTS, interpreted_if_few
from orchestration.tables.rows import free
from orchestration.tables.spark import in_short, is_gone

_SLOT = re.compile(r"/\*:(\w+):\*/(.*?)/\*:\*/")

_MODEL = "deliveries"

# The view of the run's inputs, which is created before the first query of decide_bounds that reads it. The slot is for what is read in
# place of the catalog's view of all inputs: by that model the same view, analysed for all runs; by the queries that model.
_INPUTS = "__dbt__cte__inputs_gathered"
_INPUTS_SLOT = "inputs_of_this_run"
_ANALYSED = "__dbt__cte__inputs_analysed"

# At the beginning of a query of decide_bounds, which finds nothing if this slot is false or has no value: see macros/decide/only_if.sql.
_ONLY_IF = re.compile(r"\s*/\*:only if (\w+):\*/")


class DecideError(Exception):
    """A decide run failed. Its one append was committed as a whole or not at all; the error doesn't tell which. The message is Spark's."""


def filled(statement: str, slots: Mapping[str, str]) -> str:
    """A statement with its slots filled. A slot that has no value keeps its default."""
    return _SLOT.sub(lambda slot: slots.get(slot[1], slot[2]), statement)


@dataclass(frozen=True)
class Branch:
    """view: the name of a view that has no rows if the slot is true. reads: the views that only it needs."""

    view: str
    slot: str
    reads: frozenset[str]


@dataclass(frozen=True)
class DecideStatements:
    """The statements, with slots. bounds: queries whose columns are the values of slots. views: the models, each after those that it reads.

    stages: the names of the views whose rows are computed when they are created, and kept in memory. append: the last statement.
    branches: views that are known to be empty if a slot is true; what only they read is not created then.
    """

    bounds: tuple[str, ...]
    views: Mapping[str, str]
    stages: frozenset[str]
    append: str
    branches: tuple[Branch, ...] = ()
    _schemas: dict[str, StructType] = field(default_factory=dict)
    """Of the branches, as soon as each was created once."""
    _analysed: dict[str, DataFrame] = field(default_factory=dict)
    """The catalog's view of all inputs, by its name, as the first run has analysed it. Each run reads what the tables contain by then."""

    @classmethod
    def compiled(cls, dbt: Dbt) -> DecideStatements:
        """Has dbt compile the models. Raises DbtError."""
        models = {model.id: model for model in dbt.compiled_models(f"+{_MODEL}", inject=False)}
        deliveries = next(model for model in models.values() if model.name == _MODEL)
        *bounds, append = dbt.compiled(f"{{{{ decide_statements('{_view(_MODEL)}') }}}}", fresh=True).split("\n;\n")
        views = views_of(deliveries, models)
        branches = tuple(branch_of(name, slot, deliveries, models) for name, slot in deliveries.config["empty_if"].items())
        return cls(tuple(bounds), views, frozenset(map(_view, deliveries.config["stages"])), append, branches)

    def run(
        self, spark: SparkSession, watermark: int, upto: int, rules_hash: str | None, *, inputs: int = 0, is_first: bool = False
    ) -> None:
        """Decides the batches after `watermark` up to `upto`, or fewer: it ends before a second batch that concerns one of its messages.

        rules_hash: the hash that the table `rules` must have; None: any. inputs: about how many there are in these batches. is_first:
        all models are computed even if there are none, as Spark needs some seconds more for the first time. Raises DecideError; an
        error of Py4J if Spark is gone.
        """
        slots = {"decide_run": f"xxhash64('{uuid.uuid4()}')", "given_watermark": str(watermark), "given_upto": str(upto)}
        if rules_hash is not None:
            slots["given_rules_hash"] = f"'{rules_hash}'"
        try:
            with interpreted_if_few(spark, inputs, FEW_INPUTS):
                self._run(spark, slots, is_first)
        except Exception as error:
            if is_gone(error):
                raise
            raise DecideError(in_short(error)) from error

    def _run(self, spark: SparkSession, slots: dict[str, str], is_first: bool) -> None:
        created: list[str] = []
        stages: list[DataFrame] = []

        def find(query: str) -> None:
            only_if = _ONLY_IF.match(query)
            if only_if and slots.get(only_if[1], "false") == "false":
                return
            found = spark.sql(filled(query, slots)).collect()[0].asDict()
            slots.update({name: _literal(value) for name, value in found.items() if value is not None})

        def create_inputs() -> None:
            all_inputs = next(slot[2] for slot in _SLOT.finditer(self.views[_INPUTS]) if slot[1] == _INPUTS_SLOT)
            if all_inputs not in self._analysed:
                self._analysed[all_inputs] = spark.table(all_inputs)
            self._analysed[all_inputs].createOrReplaceTempView(_ANALYSED)
            created.append(_ANALYSED)
            slots[_INPUTS_SLOT] = _ANALYSED
            create(_INPUTS)
            slots[_INPUTS_SLOT] = _INPUTS

        def create(name: str) -> None:
            # by a command, which inlines the named subqueries: otherwise Spark does so again in each analysis of what reads the view
            spark.sql(f"create or replace temporary view {name} as {filled(self.views[name], slots)}")
            created.append(name)
            if name in self.stages:
                # what reads it is analysed, optimized and planned without it. Not eager: each would be a job of its own.
                stages.append(spark.table(name).localCheckpoint(eager=False))
                stages[-1].createOrReplaceTempView(name)

        try:
            for query in self.bounds:
                if f"/*:{_INPUTS_SLOT}:*/" in query and not created:
                    create_inputs()
                find(query)
                if slots.get("inputs") == "0" and not is_first:
                    return
            # a run may end before the last batch that it was given: the models must not see inputs of later batches
            spark.table(_INPUTS).where(f"batch <= {slots['upto']}").createOrReplaceTempView(_INPUTS)
            empty = [branch for branch in self.branches if slots.get(branch.slot) == "true" and branch.view in self._schemas]
            left_out = {_INPUTS, *(name for branch in empty for name in branch.reads)}
            for name in self.views:
                if name in [branch.view for branch in empty]:
                    _without_rows(spark, self._schemas[name]).createOrReplaceTempView(name)
                    created.append(name)
                elif name not in left_out:
                    create(name)
            for branch in self.branches:
                if branch.view not in self._schemas:
                    self._schemas[branch.view] = spark.table(branch.view).schema
            if slots["inputs"] != "0":
                spark.sql(filled(self.append, slots))
            else:
                # computes them all, and keeps nothing
                spark.table(_view(_MODEL)).write.format("noop").mode("overwrite").save()
        finally:
            for name in created:
                spark.catalog.dropTempView(name)
            for frame in stages:
                free(frame)


def _without_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    """A frame that Spark's optimizer knows to be empty."""
    columns = [f"cast(null as {column.dataType.simpleString()}) as {column.name}" for column in schema.fields]
    return spark.sql(f"select {', '.join(columns)} where false")


def _literal(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass
class DecideRunner:
    """Runs decide runs. The compiled statements are kept in a file of the home: without it, a start would wait for dbt.

    schema: that of the tables. has_run: whether a run has succeeded.
    """

    spark: SparkSession
    schema: str
    dbt: Dbt
    has_run: bool = False
    _statements: DecideStatements | None = None
    _columns: tuple[str, ...] = ()

    def run(self, watermark: int, upto: int, rules_hash: str | None, inputs: int = 0) -> None:
        """One decide run: see DecideStatements.run. Raises DbtError, DecideError; an error of Py4J if Spark is gone."""
        columns = tuple(self.spark.table(f"{self.schema}.{_MODEL}").columns)
        if self._statements is None or columns != self._columns:
            # the append puts values into columns by position: another process may have changed the order of the columns
            self._columns = columns
            self._statements = self._stored() or self._compiled()
        try:
            self._statements.run(self.spark, watermark, upto, rules_hash, inputs=inputs, is_first=not self.has_run)
        except DecideError:
            # the next run loads or compiles them again, in case the SQL or the tables have changed
            self._statements = None
            raise
        self.has_run = True

    @property
    def _file(self) -> Path:
        return self.dbt.settings.decide_statements

    def _stored(self) -> DecideStatements | None:
        """The statements in the file; None if there are none, or if they were compiled from other SQL or with other settings."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            stored = json.loads(self._file.read_text(encoding="utf-8"))
            if stored["digest"] == self._digest(sql_digest(self.dbt.settings)):
                branches = tuple(Branch(one["view"], one["slot"], frozenset(one["reads"])) for one in stored["branches"])
                return DecideStatements(tuple(stored["bounds"]), stored["views"], frozenset(stored["stages"]), stored["append"], branches)
        return None

    def _compiled(self) -> DecideStatements:
        made = DecideStatements.compiled(self.dbt)
        stored = {
            # the digest of the SQL that dbt has parsed, as the files may have changed since
            "digest": self._digest(self.dbt.parsed_digest),
            "bounds": made.bounds,
            "views": made.views,
            "stages": sorted(made.stages),
            "append": made.append,
            "branches": [{"view": one.view, "slot": one.slot, "reads": sorted(one.reads)} for one in made.branches],
        }
        # a full disk must not stop the decide step
        with suppress(OSError):
            write_atomically(self._file, json.dumps(stored, indent=1) + "\n")
        return made

    def _digest(self, sql: str) -> str:
        """A hash of all that the compiled statements depend on: the SQL, the schema, the environment, and the columns of the table."""
        settings = self.dbt.settings
        environment = {name: value for name, value in os.environ.items() if name.startswith("REDRIVE_")} | settings.dbt_environment
        return hashlib.sha256(json.dumps([sql, self.schema, environment, self._columns], sort_keys=True).encode()).hexdigest()


def _view(model: str) -> str:
    """The name that dbt's SQL has for an ephemeral model."""
    return f"__dbt__cte__{model}"


def branch_of(name: str, slot: str, model: Compiled, models: Mapping[str, Compiled]) -> Branch:
    """The branch of an ephemeral model, which has no rows if the slot is true, among those that `model` is made from."""
    others = views_of(model, {key: one for key, one in models.items() if one.name != name})
    return Branch(_view(name), slot, frozenset(views_of(model, models).keys() - others.keys() - {_view(name)}))


def views_of(model: Compiled, models: Mapping[str, Compiled]) -> dict[str, str]:
    """The SQL of a model and of the ephemeral models that it is made from, by the name of the view, in the order of creation."""
    views: dict[str, str] = {}
    for parent in model.reads:
        if parent in models and models[parent].is_ephemeral:
            views |= views_of(models[parent], models)
    return {**views, _view(model.name): model.sql}
