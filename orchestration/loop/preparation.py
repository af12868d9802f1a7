"""Makes the tables and views that the loop needs, where they are missing or the project's SQL has changed since they were made."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from orchestration.logs import event
from orchestration.loop.rules_in_force import RulesInForce, seeds_file, seeds_stamp
from orchestration.settings import Settings
from orchestration.starter.directory import relink
from orchestration.tables.dbt import Dbt, variables_of
from orchestration.tables.decide_statements import interpreted
from orchestration.tables.migration import migrate_tables

log = logging.getLogger(__name__)


def prepare_tables(settings: Settings, spark: SparkSession, schema: str, dbt: Dbt, rules: RulesInForce) -> None:
    """Makes what is missing, and migrates tables of an earlier table version. Raises DbtError, CatalogError."""
    migrate_tables(settings, spark, schema)
    relink(settings)
    stamp = settings.project_digest
    digest = _digest(settings.dbt_directory, variables_of(settings))
    made = stamp.read_text(encoding="utf-8") if stamp.exists() else ""
    tables = {row["tableName"] for row in spark.sql(f"show tables in {schema}").collect()}
    if made != digest or not {"deliveries", "rules"} <= tables:
        event(log, logging.INFO, "preparation_started", schema=schema)
        with interpreted(spark):
            dbt.run("seed")
            dbt.run("run", variables={"watermark": 0, "upto": 0})
        stamp.write_text(digest, encoding="utf-8")
        seeds_file(settings).write_text(seeds_stamp(rules.seeds, rules.loaded_hash()), encoding="utf-8")


def _digest(project: Path, variables: Mapping[str, object]) -> str:
    """A hash of the project's SQL and of the variables that the settings give it. If it has changed, the views are made again."""
    digest = hashlib.sha256()
    files = [project / "dbt_project.yml", *sorted(project.glob("models/**/*")), *sorted(project.glob("macros/**/*"))]
    for path in files:
        if path.is_file():
            digest.update(path.relative_to(project).as_posix().encode() + b"\0" + path.read_bytes())
    if variables:
        digest.update(json.dumps(variables, sort_keys=True).encode())
    return digest.hexdigest()
