"""Fixtures that several unit tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from publisher import destinations
from tests.unit.publisher_kit.mock_cluster import MockCluster


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
