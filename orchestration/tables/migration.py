"""Migrates tables of an earlier table version when a loop starts, and refuses those of a newer one.

Each table of the loop has its version in a property. Where a table has an older one, its columns are renamed, others are added, and its
version is set in one commit of Iceberg's, which writes metadata only: a crash leaves the table either as it was, or migrated. Snapshots and
files stay.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pyspark.sql import SparkSession

from orchestration.logs import event
from orchestration.settings import Settings
from orchestration.tables.catalog import CatalogError, move_tables, refuse_beside_a_loop
from orchestration.tables.spark import iceberg_table, set_table_property, table_property

log = logging.getLogger(__name__)

TABLE_VERSION: Final = 3
"""The table version that this program reads and writes, the same as in the macro table_version."""

PROPERTY: Final = "redrive.version"
"""The property that holds a table's version. Tables of version 1 don't have it."""

# The property of `deliveries` for made_of.
_MADE_OF: Final = "redrive.made-of"

# `deliveries` is last: programs that only read check the version of this table alone.
_TABLES: Final = ("ticks", "events", "publish_results", "deliveries")

_RENAMED: Final[Mapping[int, Mapping[str, Mapping[str, str]]]] = {
    2: {
        "ticks": {
            "set_aside": "paused_destinations",
            "gates": "circuit_breakers",
            # a closed gate is an open circuit breaker: the two columns swap their names
            "gates.value.closed_at": "opened_at",
            "gates.value.opened_at": "closed_at",
        },
        "deliveries": {"cause": "input_id", "fold": "decide_run", "life": "life_cycle", "gate": "breaker_key"},
    },
    3: {"ticks": {"positions": "next_offsets"}},
}
"""The columns that each version renames, by table: the name in the version before, and the new one."""

_ADDED: Final[Mapping[int, Mapping[str, Mapping[str, str]]]] = {
    3: {
        "ticks": {
            "started_sources": "array<string>",
            "commands_since": "bigint",
            "commands_issued": "map<string, bigint>",
            "feed_batch": "bigint",
            "awaited_batch": "bigint",
            "paused_destinations.value.error": "string",
        }
    }
}
"""The columns that each version adds, by table, with their types: after the column that it renames; a field, at the end of its struct.

A new column alone needs no new version: dbt adds it (the macro add_missing_columns).
"""


def migrate_tables(settings: Settings, spark: SparkSession, schema: str) -> None:
    """Migrates all tables to this version. Raises CatalogError if one has a newer version, or while another loop runs with this home."""
    move_tables(settings)
    spark.sql(f"create namespace if not exists {schema}")
    versions = {table: table_version(spark, f"{schema}.{table}") for table in _existing(spark, schema)}
    if versions and max(versions.values()) > TABLE_VERSION:
        raise CatalogError(_too_new(settings, max(versions.values())))
    older = {table: version for table, version in versions.items() if version < TABLE_VERSION}
    if not older:
        return
    refuse_beside_a_loop(settings)
    # views contain the names of columns: without the digest, the next start makes them anew, even if this process ends before
    settings.project_digest.unlink(missing_ok=True)
    described = _descriptions(settings.project)
    for table, version in older.items():
        _migrate(spark, f"{schema}.{table}", version, table, described.get(table, {}))
        event(log, logging.INFO, "table_migrated", table=f"{schema}.{table}", version=TABLE_VERSION, before=version)


def unreadable_tables(settings: Settings, spark: SparkSession, schema: str) -> str | None:
    """Why this program can't read the tables, and what to do; None if it can. For commands that only read."""
    if not spark.catalog.tableExists(f"{schema}.deliveries"):
        return None
    version = table_version(spark, f"{schema}.deliveries")
    if version > TABLE_VERSION:
        return _too_new(settings, version)
    if version < TABLE_VERSION:
        return (
            f"the tables under {settings.home} have version {version}, and this program reads version {TABLE_VERSION}: "
            "start this version's loop once, by `redrive run` or `redrive tick`, which migrates them"
        )
    return None


def table_version(spark: SparkSession, name: str) -> int:
    """The version of a table."""
    return int(table_property(spark, name, PROPERTY) or 1)


def made_of(spark: SparkSession, schema: str) -> str:
    """The digest of the SQL that made the views, and the columns of the tables; empty if an earlier version made them."""
    return table_property(spark, f"{schema}.deliveries", _MADE_OF) or ""


def note_made_of(spark: SparkSession, schema: str, digest: str) -> None:
    """Notes that digest."""
    set_table_property(spark, f"{schema}.deliveries", _MADE_OF, digest)


def _existing(spark: SparkSession, schema: str) -> list[str]:
    tables = {row["tableName"] for row in spark.sql(f"show tables in {schema}").collect()}
    return [table for table in _TABLES if table in tables]


def _migrate(spark: SparkSession, name: str, version: int, table: str, descriptions: Mapping[str, str]) -> None:
    iceberg = iceberg_table(spark, name)
    change = iceberg.newTransaction()
    for later in range(version + 1, TABLE_VERSION + 1):
        _rename(change, _RENAMED.get(later, {}).get(table, {}), descriptions)
        _add(spark, change, _RENAMED.get(later, {}).get(table, {}), _ADDED.get(later, {}).get(table, {}), descriptions)
    change.updateProperties().set(PROPERTY, str(TABLE_VERSION)).commit()
    change.commitTransaction()
    spark.sql(f"refresh table {name}")


def _rename(change: Any, renames: Mapping[str, str], descriptions: Mapping[str, str]) -> None:
    schema = change.table().schema()
    renaming = change.updateSchema()
    for old, new in renames.items():
        # an old table may lack a column that was added later
        if schema.findField(old) is not None:
            renaming = renaming.renameColumn(old, new)
            if new in descriptions and "." not in old:
                renaming = renaming.updateColumnDoc(old, descriptions[new])
    renaming.commit()


def _add(spark: SparkSession, change: Any, renames: Mapping[str, str], added: Mapping[str, str], descriptions: Mapping[str, str]) -> None:
    java = spark._jvm.org.apache  # type: ignore[union-attr]
    schema = change.table().schema()
    adding = change.updateSchema()
    after = next(iter(renames.values()), None)
    for name, data_type in added.items():
        parent, _, field = name.rpartition(".")
        columns = java.iceberg.spark.SparkSchemaUtil.convert(java.spark.sql.types.StructType.fromDDL(f"{field} {data_type}")).columns()
        if parent and schema.findField(parent) is not None:
            adding = adding.addColumn(parent, field, columns[0].type())
        elif not parent:
            adding = adding.addColumn(field, columns[0].type(), descriptions.get(field, ""))
            # the place among the columns is for people only; without a renamed column it is the end
            adding = adding if after is None else adding.moveAfter(field, after)
            after = field
    adding.commit()


def _descriptions(project: Path) -> dict[str, dict[str, str]]:
    """What the columns of each model mean, for `describe`."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted((project / "models").glob("**/*.yml")):
        for model in (yaml.safe_load(path.read_text(encoding="utf-8")) or {}).get("models", ()):
            found[model["name"]] = {column["name"]: column.get("description", "") for column in model.get("columns", ())}
    return found


def _too_new(settings: Settings, version: int) -> str:
    return (
        f"the tables under {settings.home} have version {version}, and this program knows versions up to {TABLE_VERSION}: "
        "a newer version of redrive has changed them. Use that version, or a newer one; --home or REDRIVE_HOME names another state"
    )
