"""`redrive sql`: one select over the tables, as a table for people, or as JSON or CSV for programs."""

from __future__ import annotations

import base64
import csv
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from orchestration.output import as_json, console, printable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from orchestration.settings import Settings
    from orchestration.tables.analysed_views import AnalysedViews

Format = Literal["table", "json", "jsonl", "csv"]
"""How rows are printed: a table for people, one JSON array, one JSON object a line, or CSV with a header line."""


# What a statement that begins like a select may turn out to do (with ... insert).
_WRITES = {"InsertIntoStatement", "MergeIntoTable", "UpdateTable", "DeleteFromTable"}


class QueryError(Exception):
    """The statement can't be run: it is not one select, there are no tables to read, or Spark refuses it.

    In the last case the message is Spark's, shortened.
    """

    exit_code = 2


@dataclass(frozen=True)
class Rows:
    """The result of a select. `more`: there were more rows than the limit."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool


@dataclass(frozen=True)
class Probe:
    """The state of the catalog. error: why it can't be written to. are_left_behind: the tables have the names of version 0.1.0."""

    schema: str
    error: str | None
    are_left_behind: bool
    has_name_of_schema: bool


class Tables:
    """The tables of an installation, for questions in SQL. Starts Spark if it isn't running."""

    def __init__(self, settings: Settings) -> None:
        from orchestration.tables.spark import schema

        self._settings = settings
        self._schema = schema(settings.project)

    @property
    def _spark(self) -> SparkSession:
        from orchestration.tables.spark import session_to_ask

        return session_to_ask(self._settings)

    @property
    def _views(self) -> AnalysedViews:
        from orchestration.tables.analysed_views import views_to_ask

        return views_to_ask(self._settings)

    def missing(self) -> str | None:
        """Why there are no tables; None if there are some."""
        from orchestration.tables.catalog import missing_tables, without_tables

        if missing := without_tables(self._settings):
            return missing
        return None if self._spark.catalog.tableExists(f"{self._schema}.deliveries") else missing_tables(self._settings)

    def unreadable(self) -> str | None:
        """Why existing tables can't be read: they have an older or a newer table version; None if they can."""
        from orchestration.tables.migration import unreadable_tables

        return unreadable_tables(self._settings, self._spark, self._schema)

    def probe(self) -> Probe:
        """Writes a table to the catalog, and drops it. If there is no catalog yet, this creates it."""
        from orchestration.tables.catalog import default_catalog, left_behind, without_tables
        from orchestration.tables.spark import in_short, start_session

        probe = f"{self._schema}.check_writes"
        error = None
        try:
            spark = start_session(self._settings) if without_tables(self._settings) else self._spark
            spark.sql(f"create namespace if not exists {self._schema}")
            spark.sql(f"create or replace table {probe} using iceberg as select 1 as one")
            spark.sql(f"drop table {probe} purge")
        except Exception as refused:
            error = in_short(refused)
        has_its_name = default_catalog(self._settings.project) == self._schema
        return Probe(self._schema, error, are_left_behind=left_behind(self._settings), has_name_of_schema=has_its_name)

    def objections_to_source(self, table: str, dialect: str) -> list[str]:
        """Why a source can't read an Iceberg table, in words; none if it can. table: its name, with its catalog or without."""
        from orchestration.tables.source_tables import objections, objections_to_format
        from orchestration.tables.spark import full_name, iceberg_table, in_short

        try:
            of_format = objections_to_format(self._spark, iceberg_table(self._spark, table))
            return of_format + objections(self._spark.table(full_name(self._spark, table)).schema, dialect)
        except Exception as error:
            return [in_short(error)]

    def select(self, statement: str, limit: int) -> Rows:
        """Runs one select of a user. Raises QueryError for anything else, and for what Spark refuses."""
        from orchestration.tables.spark import nodes

        text = statement.strip().rstrip(";")
        bare = _without_literals(text)
        command = re.match(r"(?i)[\s(]*(select|with|show|describe|explain)\b", bare)
        if command is None or ";" in bare:
            raise QueryError("give one select statement (or with, show, describe, explain)")
        if objection := self.missing() or self.unreadable():
            raise QueryError(objection)
        spark = self._spark
        with _refusals():
            parsed = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
        if any(node.getClass().getSimpleName() in _WRITES for node in nodes(parsed)):
            raise QueryError("give one select statement: this one would write")
        if command[1].lower() in ("select", "with"):
            return query(self._views, text, limit)
        with _refusals():
            # where no temporary view hides one of the schema
            spark.sql(f"use {self._schema}")
            return _first(spark.sql(text), limit)

    def rows(self, statement: str) -> list[dict[str, Any]]:
        """All rows of a statement, which names tables without the schema. It is not checked: never one that a user wrote."""
        from orchestration.tables.rows import collected

        return [row.asDict(recursive=True) for row in self._views.ask(statement, collected)]


def list_tables(settings: Settings) -> Rows:
    """The tables and views that can be queried, with their descriptions: marts first, then decisions and sends, then the rules.

    Read from the descriptions of the project's models, so it needs neither Spark nor tables.
    """
    import yaml

    found: list[tuple[str, str, str]] = []
    models = settings.dbt_directory / "models"
    for path in sorted(models.glob("**/*.yml")):
        described = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        for kind, nodes in ((path.relative_to(models).parts[0], described.get("models")), ("rules", described.get("seeds"))):
            # a model without described columns is ephemeral: it has no table or view
            found += [(node["name"], kind, " ".join(node["description"].split())) for node in nodes or () if node.get("columns")]
    order = {kind: place for place, kind in enumerate(("marts", "retry", "ledgers", "commands", "rules"))}
    return Rows(("name", "group", "description"), tuple(sorted(found, key=lambda row: (order.get(row[1], len(order)), row[0]))), more=False)


def query(views: AnalysedViews, statement: str, limit: int) -> Rows:
    """Runs a select. Raises QueryError for what Spark refuses."""
    with _refusals():
        return views.ask(statement, lambda frame: _first(frame, limit))


def _first(frame: DataFrame, limit: int) -> Rows:
    from orchestration.tables.rows import collected

    rows = collected(frame, limit + 1)
    return Rows(tuple(frame.columns), tuple(tuple(row) for row in rows[:limit]), len(rows) > limit)


@contextmanager
def _refusals() -> Iterator[None]:
    """Turns what Spark says about a statement of a user into a QueryError, without Java's traces."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from orchestration.tables.spark import in_short

    try:
        yield
    except PySparkException as error:
        raise QueryError(str(error).split("\n\nJVM")[0].split("; line")[0].strip()) from error
    except Py4JJavaError as error:
        # errors while rows are read have no class of their own in Python
        raise QueryError(in_short(error)) from error


def print_rows(rows: Rows, output: Format, screen: Console | None = None) -> None:
    """Prints rows to standard output; a note that there are more goes to standard error."""
    if output == "table":
        # as Text, in which brackets are no markup
        table = Table(*(Column(Text(printable(name))) for name in rows.columns), box=None, pad_edge=False, header_style="bold")
        for row in rows.rows:
            table.add_row(*(Text(_shown(value)) for value in row))
        (screen or console()).print(table)
    elif output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(map(printable, rows.columns))
        writer.writerows([_cell(value) for value in row] for row in rows.rows)
    else:
        if twice := sorted({name for name in rows.columns if list(rows.columns).count(name) > 1}):
            raise QueryError(f"two columns are called {', '.join(twice)}, which a JSON object can't hold: rename one with `as`")
        lines = [as_json(dict(zip(rows.columns, map(_plain, row), strict=True))) for row in rows.rows]
        if output == "json":
            # one line for each row, for pagers and diffs
            lines = ["[" + ",\n ".join(lines) + "]"]
        print(*lines, sep="\n", end="\n" if lines else "")
    say_more(rows)


def _cell(value: Any) -> str:
    """A value in CSV: null is an empty cell; maps, lists and structs are JSON."""
    plain = _plain(value)
    if plain is None:
        return ""
    return printable(plain) if isinstance(plain, str) else as_json(plain)


def say_more(rows: Rows) -> None:
    """Prints a note to standard error if there are more rows than the limit."""
    if rows.more:
        print(f"there are more than these {len(rows.rows)} rows; a higher --limit shows more", file=sys.stderr)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if hasattr(value, "asDict"):
        return {name: _plain(inner) for name, inner in value.asDict().items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        # JSON has no word for the others
        return value if math.isfinite(value) else str(value)
    # dates, decimals, intervals
    return value if value is None or isinstance(value, str | int) else str(value)


def _shown(value: Any) -> str:
    plain = _plain(value)
    if plain is None:
        return "-"
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    return printable(text)


def _without_literals(text: str) -> str:
    """A statement with empty texts instead of its own, and without comments: what it says, not what it speaks of."""
    return re.sub(r"""(?s)('|")(?:[^\\'"]|\\.|(?!\1)['"]|\1\1)*\1|--[^\n]*|/\*.*?\*/""", lambda found: "''" if found[1] else " ", text)


def first_of(names: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    return ", ".join(names[:3]) + (f", and {len(names) - 3} more" if len(names) > 3 else "")


__all__: Sequence[str] = ("Format", "QueryError", "Rows", "Tables", "first_of", "list_tables", "print_rows", "query", "say_more")
