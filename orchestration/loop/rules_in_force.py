"""The rules that decisions are made by: reads the seeds, loads them into the tables, and loads them again when their files change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import Row, SparkSession

from orchestration.logs import event
from orchestration.loop.health import SEEDS, Health, Reason
from orchestration.loop.state import LoopState
from orchestration.loop.steps import StepReport, StepResult
from orchestration.rules.policy_reading import definitions, problems, read_policies
from orchestration.rules.seeds import SeedError, Seeds, read_seeds
from orchestration.rules.topic_patterns import topic_matches
from orchestration.settings import Settings
from orchestration.tables.dbt import Dbt, DbtError
from orchestration.tables.interpreted import dbt_interpreted
from orchestration.tables.spark import in_short, is_gone, schema

log = logging.getLogger(__name__)


def seeds_file(settings: Settings) -> Path:
    """The file that records which seeds were loaded, and the hash of the rules made of them."""
    return settings.home / "seeds.digest"


def seeds_stamp(seeds: Seeds, rules_hash: str) -> str:
    """The content of that file: the digest of the seeds, and the hash of the rules made of them."""
    return f"{seeds.digest} {rules_hash}\n"


def were_loaded(settings: Settings, seeds: Seeds) -> bool:
    """Whether these seeds are those that were loaded last; a `dbt build` beside the loop may have loaded others since."""
    return _stamp(settings).partition(" ")[0] == seeds.digest


def _stamp(settings: Settings) -> str:
    file = seeds_file(settings)
    return file.read_text(encoding="utf-8") if file.exists() else ""


@dataclass
class RulesInForce:
    """The seeds that were read, and the hash that every decide run must find.

    hash: None before the seeds are loaded: until then, a start decides old inputs by whatever rules the tables have. is_stale: the rules in
    the tables are not made of these seeds, or that is unknown; the next tick loads the seeds. when_loaded: called after each load.
    """

    settings: Settings
    spark: SparkSession
    dbt: Dbt
    health: Health
    seeds: Seeds
    when_loaded: Callable[[], None]
    hash: str | None = None
    is_stale: bool = False
    _ranked: tuple[str | None, list[Row]] | None = None
    """The routes of followers, by the hash of the rules."""

    @property
    def keeps_sequences(self) -> bool:
        """Whether a route says that its messages are to be processed in order."""
        return any(route["sequence"] for route in self.seeds.rows["routes"])

    @property
    def has_outboxes(self) -> bool:
        """Whether rows of outboxes are published, which stay in order."""
        return bool(self.seeds.rows["outboxes"])

    def keeps_order_of(self, consumer_group: str, topics: Collection[str]) -> bool:
        """Whether the messages of all these topics are to be processed in order by a group, by the first route that fits each."""
        return all(self._has_sequences(topic, consumer_group) for topic in topics)

    def _has_sequences(self, topic: str, consumer_group: str) -> bool:
        if self._ranked is None or self._ranked[0] != self.hash:
            self._ranked = self.hash, self._routes_of_followers()
        for route in self._ranked[1]:
            if topic_matches(topic, route["topic"]) and route["consumer_group"] in ("*", consumer_group):
                return bool(route["sequence"])
        return False

    def _routes_of_followers(self) -> list[Row]:
        """The routes by which followers go, the most specific first, as the SQL ranks them."""
        return self.spark.sql(
            f"""
            select route.topic, route.consumer_group, route.sequence
            from {schema(self.settings.project)}.rules lateral view posexplode(routes) ranked as place, route
            where route.error_kind in ('*', 'follows')
            order by place
            """
        ).collect()

    def loaded_hash(self) -> str:
        """The hash of the rules in the tables, which a decide run would find now."""
        rules = self.spark.table(f"{schema(self.settings.project)}.rules")
        return str(rules.select("rules_hash").collect()[0]["rules_hash"])

    def check(self) -> None:
        """Has the SQL read the policies of seeds that are not loaded yet. Raises SeedError, DbtError."""
        if were_loaded(self.settings, self.seeds):
            return
        found = list(problems(self.settings.seeds, self.seeds, read_policies(self.spark, self.dbt, definitions(self.seeds))))
        if found:
            raise SeedError(found)

    def load(self) -> None:
        """Loads the seeds, if others were loaded last, and sets the hash that every decide run from now on must find. Raises DbtError."""
        rules = self.loaded_hash()
        # the stamp has the hash of the tables, too: a `dbt build` beside the loop may have loaded other files since
        if _stamp(self.settings) != seeds_stamp(self.seeds, rules):
            self.dbt.parse()
            with dbt_interpreted(self.spark):
                self.dbt.run("seed")
                self.dbt.run("run", select=["rules"])
            rules = self.loaded_hash()
            seeds_file(self.settings).write_text(seeds_stamp(self.seeds, rules), encoding="utf-8")
        self.hash = rules
        self.is_stale = False
        self.when_loaded()

    def run(self, state: LoopState, now: datetime) -> StepResult:
        """The step that reads the files again, and loads them where they have changed."""
        report = StepReport(state)
        if not self.health.may(SEEDS):
            return report.result()
        try:
            seeds = read_seeds(self.settings.seeds)
        except SeedError as error:
            report.failed(SEEDS, Reason(f"the seeds have changed and can't be used; the old rules stay in force:\n{error}"))
            return report.result()
        if seeds.digest == self.seeds.digest and not self.is_stale:
            report.recovered(SEEDS)
            return report.result()
        if seeds.digest != self.seeds.digest:
            event(log, logging.INFO, "seeds_changed", directory=self.settings.seeds)
        else:
            event(log, logging.INFO, "rules_loaded_again", directory=self.settings.seeds)
        self.seeds, self.is_stale = seeds, True
        try:
            self.check()
            self.load()
        except Exception as error:
            if is_gone(error):
                raise
            said = error if isinstance(error, DbtError | SeedError) else in_short(error)
            report.failed(SEEDS, Reason(f"the seeds could not be loaded; the old rules stay in force:\n{said}"))
        return report.result()
