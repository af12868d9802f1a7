"""Views that a session analyses once, not for each question.

Spark resolves a query over views with all views below them, which takes half of the time of a question about few rows. A temporary view
keeps what it was resolved to (spark.sql.legacy.storeAnalyzedPlanForView). Such a plan still reads what the tables contain now: with the
catalog's cache switched off, Iceberg loads a table's metadata for each scan. profiles.yml sets both.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from pyspark.sql import DataFrame, SparkSession

from orchestration.settings import Settings
from orchestration.tables.spark import another_to_ask, default_catalog, java_errors, java_strings, schema, session_to_ask, view_text

_Answer = TypeVar("_Answer")

# A name without a schema; and any name.
_BARE, _NAME = re.compile(r"(?<![\w.])\w+"), re.compile(r"\w+")


def views_to_ask(settings: Settings) -> AnalysedViews:
    """The views of an installation, for queries of people. Starts Spark if it isn't running."""
    return _views_to_ask(session_to_ask(settings), schema(settings.project))


@lru_cache(maxsize=1)
def _views_to_ask(session: SparkSession, schema: str) -> AnalysedViews:
    return AnalysedViews(another_to_ask(session), schema)


@dataclass
class AnalysedViews:
    """The views of a schema, under their own names.

    spark: a session that nothing else uses, as the temporary views hide the schema's.
    """

    spark: SparkSession
    schema: str
    _made_of: dict[str, dict[str, str]] = field(default_factory=dict)
    """For each view that was analysed, its text and those of the views below it, by name."""

    def ask(self, statement: str, read: Callable[[DataFrame], _Answer]) -> _Answer:
        """Reads the rows of a select, which names tables and views without the schema. Raises an error of Spark."""
        try:
            return read(self.frame(statement))
        except Exception as error:
            # a table was made anew: Iceberg refuses to read it in place of the one before
            if not self._made_of or not any(one.is_raised_in("org.apache.iceberg.") for one in java_errors(error)):
                raise
            self._made_of.clear()
            return read(self.frame(statement))

    def frame(self, statement: str) -> DataFrame:
        """The rows of a select, as `ask` reads them. If a table was made anew, reading them fails."""
        self.spark.sql(f"use {self.schema}")
        there = {str(one.name()) for one in default_catalog(self.spark).listViews(java_strings(self.spark, self.schema.split(".")))}
        for gone in self._made_of.keys() - there:
            self.spark.catalog.dropTempView(gone)
            del self._made_of[gone]
        for name in there & set(_BARE.findall(statement)):
            texts = self._texts(name, there)
            if self._made_of.get(name) != texts:
                self.spark.table(f"{self.schema}.{name}").createOrReplaceTempView(name)
                self._made_of[name] = texts
        return self.spark.sql(statement)

    def _texts(self, view: str, there: set[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        left = [view]
        while left:
            name = left.pop()
            if name not in found:
                found[name] = view_text(self.spark, f"{self.schema}.{name}")
                left += there & set(_NAME.findall(found[name]))
        return found
