"""Makes the tables and views that the loop needs, where they are missing or the project's SQL has changed since they were made."""

from __future__ import annotations

import logging

from pyspark.sql import SparkSession

from orchestration.logs import event
from orchestration.loop.rules_in_force import RulesInForce, seeds_file, seeds_stamp
from orchestration.settings import Settings
from orchestration.starter.directory import relink
from orchestration.tables.dbt import Dbt, sql_digest
from orchestration.tables.interpreted import dbt_interpreted
from orchestration.tables.migration import migrate_tables

log = logging.getLogger(__name__)


def prepare_tables(settings: Settings, spark: SparkSession, schema: str, dbt: Dbt, rules: RulesInForce) -> None:
    """Makes what is missing, and migrates tables of an earlier table version. Raises DbtError, CatalogError."""
    migrate_tables(settings, spark, schema)
    relink(settings)
    stamp = settings.project_digest
    digest = sql_digest(settings)
    made = stamp.read_text(encoding="utf-8") if stamp.exists() else ""
    tables = {row["tableName"] for row in spark.sql(f"show tables in {schema}").collect()}
    if made != digest or not {"deliveries", "rules"} <= tables:
        event(log, logging.INFO, "preparation_started", schema=schema)
        dbt.parse()
        with dbt_interpreted(spark):
            dbt.run("seed")
            dbt.run("run", variables={"watermark": 0, "upto": 0})
        stamp.write_text(digest, encoding="utf-8")
        seeds_file(settings).write_text(seeds_stamp(rules.seeds, rules.loaded_hash()), encoding="utf-8")
