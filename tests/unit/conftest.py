"""Fixtures that several unit tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from test_publisher_kit.mock_cluster import MockCluster

from publisher import destinations


@pytest.fixture
def mock_cluster() -> Iterator[MockCluster]:
    """A mock Kafka cluster of one broker, new for each test: some of its scripts outlive the requests they were for."""
    destinations._known.clear()
    cluster = MockCluster()
    yield cluster
    cluster.close()
