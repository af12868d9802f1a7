"""A real broker, a home, and Dagster in this process. All tests of this folder share them: Spark and the tables take half a minute."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from orchestration.dagster.resource import Redrive as Resource
from orchestration.definitions import definitions
from orchestration.loop.loop import Loop
from orchestration.settings import load_settings
from tests.loop.conftest import broker
from tests.loop.harness import Redrive, write_seeds
from tests.sessions import stop_session

__all__ = ["broker"]

PROJECT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Deployment:
    """The definitions, an instance that records events, and access to Kafka."""

    definitions: dg.Definitions
    instance: dg.DagsterInstance
    kafka: Redrive
    resource: Resource

    def run(self, job: str, config: dict[str, Any] | None = None, *, raises: bool = True) -> dg.ExecuteInProcessResult:
        """Runs a job; `all` materializes all assets."""
        found = self.definitions.resolve_implicit_global_asset_job_def() if job == "all" else self.definitions.resolve_job_def(job)
        return found.execute_in_process(instance=self.instance, run_config=config, raise_on_error=raises)

    def materialized(self, run: dg.ExecuteInProcessResult, asset: str) -> list[dict[str, Any]]:
        """The metadata of each materialization of an asset in a run, in their order."""
        entries = self.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
        found = [entry.asset_materialization for entry in entries]
        return [{name: value.value for name, value in one.metadata.items()} for one in found if one and one.asset_key == dg.AssetKey(asset)]


@pytest.fixture(scope="module")
def deployment(broker: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A new home, with the settings in the environment, as in a deployment."""
    path = tmp_path_factory.mktemp("dagster")
    seeds = write_seeds(path / "seeds", PROJECT)
    environment = {
        "REDRIVE_HOME": str(path / "home"),
        "REDRIVE_SEEDS": str(seeds),
        "REDRIVE_PROJECT": str(PROJECT),
        "REDRIVE_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
    }
    # an existing Spark session has the catalog of other tests, and would be used as it is; later tests would use ours
    stop_session()
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        for name, value in environment.items():
            patch.setenv(name, value)
        settings = load_settings()
        kafka = Redrive(settings.kafka_properties, Loop(settings))
        yield Deployment(definitions(settings), instance, kafka, Resource())
        stop_session()
    assert "REDRIVE_PROJECT" not in os.environ
