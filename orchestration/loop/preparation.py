"""Makes the tables and views that the loop needs, where they are missing or the project's SQL has changed since they were made."""

from __future__ import annotations

import contextlib
import logging
import threading

from pyspark.sql import SparkSession

from orchestration.logs import event
from orchestration.loop.rules_in_force import RulesInForce, seeds_file, seeds_stamp, were_loaded
from orchestration.rules.seed_rows import Seeds
from orchestration.settings import Settings
from orchestration.starter.directory import relink
from orchestration.tables.dbt import Dbt, sql_digest
from orchestration.tables.interpreted import dbt_interpreted
from orchestration.tables.migration import made_of, migrate_tables, note_made_of
from orchestration.tables.views import make_tables

log = logging.getLogger(__name__)


def begin_dbt(settings: Settings, seeds: Seeds) -> Dbt:
    """dbt, which begins to parse the project if the tables have to be made or the seeds to be loaded: Spark, which starts at the same time,
    mostly waits for Java.

    An error is raised by the next use of dbt, which parses again.
    """
    dbt = Dbt(settings)

    def parse() -> None:
        with contextlib.suppress(Exception):
            dbt.parse()

    if _made(settings) != sql_digest(settings) or not were_loaded(settings, seeds):
        settings.make_home()
        threading.Thread(target=parse, name="parse", daemon=True).start()
    return dbt


def _made(settings: Settings) -> str:
    """The digest of the SQL that the views were made of; empty if there are none."""
    stamp = settings.project_digest
    return stamp.read_text(encoding="utf-8") if stamp.exists() else ""


def prepare_tables(settings: Settings, spark: SparkSession, schema: str, dbt: Dbt, rules: RulesInForce) -> None:
    """Makes what is missing, migrates tables of an earlier table version, and checks seeds that are not loaded yet.

    Raises DbtError, CatalogError, SeedError.
    """
    migrate_tables(settings, spark, schema)
    relink(settings)
    digest = sql_digest(settings)
    tables = {row["tableName"] for row in spark.sql(f"show tables in {schema}").collect()}
    has_tables = {"deliveries", "rules"} <= tables
    # the file tells which SQL this home has seen; the tables may be those of a backup
    if _made(settings) != digest or not has_tables or made_of(spark, schema) != digest:
        event(log, logging.INFO, "preparation_started", schema=schema)
        dbt.parse()
        with dbt_interpreted(spark):
            make_tables(spark, dbt, schema)
        note_made_of(spark, schema, digest)
        settings.project_digest.write_text(digest, encoding="utf-8")
        seeds_file(settings).write_text(seeds_stamp(rules.seeds, rules.loaded_hash()), encoding="utf-8")
    # a loop that runs goes on by its rules, where this one could not load its own: it has not taken over yet
    rules.check()
