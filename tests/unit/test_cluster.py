"""What Kafka says about itself, and how it is told when it says nothing."""

from __future__ import annotations

import pytest

from orchestration.cluster import Cluster, ClusterError
from orchestration.metrics import error_name
from tests.unit.publisher_kit.mock_cluster import MockCluster


def test_a_refused_login_is_told_by_its_name_and_without_the_password(mock_cluster: MockCluster) -> None:
    login = {
        "bootstrap.servers": mock_cluster.bootstrap,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "user",
        "sasl.password": "hunter2-s3cret",
    }
    with pytest.raises(ClusterError) as refused:
        Cluster(login, timeout_seconds=2).topic_names()
    assert error_name(str(refused.value)) == "_AUTHENTICATION"
    assert "hunter2-s3cret" not in str(refused.value)


def test_nobody_listening_is_told_by_its_name() -> None:
    with pytest.raises(ClusterError) as silent:
        Cluster({"bootstrap.servers": "127.0.0.1:1"}, timeout_seconds=0.5).topic_names()
    assert error_name(str(silent.value)) == "_TRANSPORT"
