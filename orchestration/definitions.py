"""What Dagster loads: `dagster dev` in the root of the project finds it through pyproject.toml."""

from __future__ import annotations

import dagster as dg

from orchestration.dagster.assets import dead_letter_report, marts_asset, rules_asset, tick_asset
from orchestration.dagster.checks import CHECKS
from orchestration.dagster.graph import KAFKA, read_graph
from orchestration.dagster.jobs import JOBS
from orchestration.dagster.manifest import load_manifest
from orchestration.dagster.resource import Redrive
from orchestration.dagster.schedules import SCHEDULES
from orchestration.settings import Settings, load_settings


@dg.definitions
def redrive() -> dg.Definitions:
    """The project as the settings name it."""
    return definitions(load_settings())


def definitions(settings: Settings) -> dg.Definitions:
    """Assets, checks, jobs and schedules over one project's models."""
    graph = read_graph(load_manifest(settings))
    return dg.Definitions(
        assets=[*KAFKA, rules_asset(graph), tick_asset(graph), marts_asset(graph), dead_letter_report],
        asset_checks=CHECKS,
        jobs=JOBS,
        schedules=SCHEDULES,
        resources={"redrive": Redrive()},
        # a process per step would start a JVM per step
        executor=dg.in_process_executor,
    )
