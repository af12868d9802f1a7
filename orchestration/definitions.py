"""What Dagster loads: `dagster dev` in the root of the project finds it through pyproject.toml."""

from __future__ import annotations

import dagster as dg

from orchestration.dagster.assets import dead_letter_report, marts_asset, rules_asset, tick_asset
from orchestration.dagster.checks import CHECKS
from orchestration.dagster.dbt_tests import dbt_tests
from orchestration.dagster.graph import KAFKA, owners_of, read_graph, rows_of
from orchestration.dagster.jobs import JOBS
from orchestration.dagster.manifest import load_manifest
from orchestration.dagster.outboxes import outbox_assets, outbox_checks
from orchestration.dagster.promises_check import promises_hold
from orchestration.dagster.resource import Redrive
from orchestration.dagster.schedules import SCHEDULES
from orchestration.settings import Settings, load_settings


@dg.definitions
def redrive() -> dg.Definitions:
    """The definitions for the project that the settings name."""
    return definitions(load_settings())


def definitions(settings: Settings) -> dg.Definitions:
    """Assets, checks, jobs and schedules over one project's models."""
    manifest = load_manifest(settings)
    seeds = rows_of(settings.seeds)
    owners, outboxes = owners_of(seeds.get("routes", ())), seeds.get("outboxes", ())
    tables = outbox_assets(outboxes)
    graph = read_graph(manifest, owners, [spec.key for spec in tables])
    kafka = [spec.replace_attributes(owners=owners) if spec.key.to_user_string() == "dlq_topics" else spec for spec in KAFKA]
    return dg.Definitions(
        assets=[*kafka, *tables, rules_asset(graph), tick_asset(graph), marts_asset(graph), dead_letter_report],
        asset_checks=[*CHECKS, *outbox_checks(outboxes), promises_hold, dbt_tests(manifest, graph.keys)],
        jobs=JOBS,
        schedules=SCHEDULES,
        resources={"redrive": Redrive()},
        # a process per step would start a JVM per step
        executor=dg.in_process_executor,
    )
