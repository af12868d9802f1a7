"""Fixtures that several unit tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from publisher import destinations
from tests.unit.publisher_kit.mock_cluster import MockCluster

# as it was before the first test
_ENVIRONMENT = dict(os.environ)


@pytest.fixture(autouse=True, scope="module")
def no_settings_of_another_test() -> Iterator[None]:
    """Removes what the Spark session of another test has put into the environment for profiles.yml, its seeds for instance."""
    with pytest.MonkeyPatch.context() as patched:
        for name in [name for name in os.environ if name.startswith("REDRIVE_") and name not in _ENVIRONMENT]:
            patched.delenv(name)
        yield


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuses to start Spark, and to use a session that another test has started."""

    def refuse(*_: object) -> None:
        raise AssertionError("Spark would be started")

    monkeypatch.setattr("orchestration.tables.spark._session", refuse)


@pytest.fixture
def mock_cluster() -> Iterator[MockCluster]:
    """A mock Kafka cluster of one broker, new for each test: some of its scripts outlive the requests they were for."""
    destinations._known.clear()
    cluster = MockCluster()
    yield cluster
    cluster.close()


@pytest.fixture
def two_brokers() -> Iterator[MockCluster]:
    """A mock Kafka cluster of two brokers. The second leads partition 1 of the topic `half`, the first partition 0."""
    cluster = MockCluster(brokers=2)
    cluster.create("half", partitions=2)
    cluster.lead("half", 0, 1)
    cluster.lead("half", 1, 2)
    yield cluster
    cluster.close()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project as the current directory, and an environment without settings."""
    for name in list(os.environ):
        if name.startswith("REDRIVE_"):
            monkeypatch.delenv(name)
    (tmp_path / "dbt_project.yml").write_text("seed-paths: [\"{{ env_var('REDRIVE_SEEDS', 'x') }}\"]")
    (tmp_path / "profiles.yml").write_text("target: \"{{ env_var('REDRIVE_TARGET', 'local') }}\"")
    (tmp_path / "dbt_project" / "seeds").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path
