"""Makes the tables and views that the loop needs, where they are missing or the project's SQL has changed since they were made."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from pyspark.sql import SparkSession

from orchestration.loop.rules_in_force import RulesInForce, seeds_file, seeds_stamp
from orchestration.settings import Settings
from orchestration.tables.dbt import Dbt
from orchestration.tables.migration import migrate_tables

log = logging.getLogger(__name__)


def prepare_tables(settings: Settings, spark: SparkSession, schema: str, dbt: Dbt, rules: RulesInForce) -> None:
    """Makes what is missing, and brings tables of a version before to this one. Raises DbtError, CatalogError."""
    migrate_tables(settings, spark, schema)
    stamp = settings.project_digest
    digest = _digest(settings.project)
    made = stamp.read_text(encoding="utf-8") if stamp.exists() else ""
    tables = {row["tableName"] for row in spark.sql(f"show tables in {schema}").collect()}
    if made != digest or not {"deliveries", "rules"} <= tables:
        log.info("preparing tables and views")
        dbt.run("seed")
        dbt.run("run", variables={"watermark": 0, "upto": 0})
        stamp.write_text(digest, encoding="utf-8")
        seeds_file(settings).write_text(seeds_stamp(rules.seeds, rules.loaded_hash()), encoding="utf-8")


def _digest(project: Path) -> str:
    """Tells whether the project's SQL has changed since its views were made."""
    digest = hashlib.sha256()
    files = [project / "dbt_project.yml", *sorted(project.glob("models/**/*")), *sorted(project.glob("macros/**/*"))]
    for path in files:
        if path.is_file():
            digest.update(path.relative_to(project).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
