"""What Kafka says about itself, and how it is told when it says nothing."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Uuid

from orchestration.kafka.cluster import Cluster, ClusterError, Partition
from tests.unit.publisher_kit.mock_cluster import Api, MockCluster


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
    assert refused.value.name == "_AUTHENTICATION"
    assert "hunter2-s3cret" not in str(refused.value)


def test_nobody_listening_is_told_by_its_name() -> None:
    with pytest.raises(ClusterError) as silent:
        Cluster({"bootstrap.servers": "127.0.0.1:1"}, timeout_seconds=0.5).topic_names()
    assert silent.value.name == "_TRANSPORT"


@pytest.fixture
def server_with_tls() -> Iterator[str]:
    """The address of a server that closes a connection which doesn't begin with TLS."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        # without a certificate: it refuses, but in TLS
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with contextlib.suppress(OSError), connection, context.wrap_socket(connection, server_side=True):
                    pass

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def test_an_address_that_cannot_be_resolved_one_that_refuses_and_one_that_needs_tls_are_told_apart(server_with_tls: str) -> None:
    said, names = [], []
    for servers in ("no-such-host.invalid:9092", "127.0.0.1:1", server_with_tls):
        with pytest.raises(ClusterError) as raised:
            Cluster({"bootstrap.servers": servers}, timeout_seconds=2).topic_names()
        said.append(str(raised.value))
        names.append(raised.value.name)
    assert "Failed to resolve 'no-such-host.invalid:9092'" in said[0]
    assert names[0] == "_RESOLVE"
    assert "Connection refused" in said[1]
    assert f"{server_with_tls} asks for TLS" in said[2]


def halves(cluster: Cluster) -> dict[int, Partition]:
    """The partitions of the topic `half`, by number."""
    topic = cluster.describe(["half"])["half"]
    return {partition.number: partition for partition in topic.all_partitions}


def test_a_group_whose_coordinator_has_moved_is_asked_again_and_ends_no_process(mock_cluster: MockCluster) -> None:
    mock_cluster.create("orders")
    mock_cluster.commit("billing", "orders", "")
    cluster = Cluster({"bootstrap.servers": mock_cluster.bootstrap}, timeout_seconds=5)
    assert cluster.committed("billing", [("orders", 0)]) == {("orders", 0): 1}
    mock_cluster.fail(Api.OFFSET_FETCH, 16, 16)
    assert cluster.committed("billing", [("orders", 0)]) == {("orders", 0): 1}
    assert cluster.committed("nobody", [("orders", 0)]) == {}


def test_a_group_that_may_not_be_read_is_told_and_the_next_is_asked(mock_cluster: MockCluster) -> None:
    mock_cluster.create("orders")
    mock_cluster.commit("billing", "orders", "")
    cluster = Cluster({"bootstrap.servers": mock_cluster.bootstrap}, timeout_seconds=5)
    mock_cluster.fail(Api.OFFSET_FETCH, 30)
    with pytest.raises(ClusterError, match="GROUP_AUTHORIZATION_FAILED"):
        cluster.committed("secret", [("orders", 0)])
    assert cluster.committed("billing", [("orders", 0)]) == {("orders", 0): 1}


def test_partitions_of_a_broker_that_gives_no_answer_have_no_end(two_brokers: MockCluster) -> None:
    cluster = Cluster({"bootstrap.servers": two_brokers.bootstrap}, timeout_seconds=2)
    partitions = halves(cluster)
    with two_brokers.down(2):
        assert cluster.ends(partitions.values()) == {partitions[0]: 0}
        with pytest.raises(ClusterError, match=r"Connection refused.*_TRANSPORT"):
            cluster.starts([partitions[1]])


def test_a_partition_without_a_leader_hides_no_other(two_brokers: MockCluster) -> None:
    two_brokers.lead("half", 1, -1)
    cluster = Cluster({"bootstrap.servers": two_brokers.bootstrap}, timeout_seconds=2)
    partitions = halves(cluster)
    assert cluster.ends(partitions.values()) == {partitions[0]: 0}
    with pytest.raises(ClusterError, match="No leaders found"):
        cluster.ends([partitions[1]])


def test_topics_of_a_broker_that_knows_no_ids_are_known_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({"bootstrap.servers": "127.0.0.1:1"})

    def describe_topics(topics: Any, **_: Any) -> dict[str, Future[Any]]:
        futures: dict[str, Future[Any]] = {name: Future() for name in ("a", "b")}
        for future in futures.values():
            future.set_result(SimpleNamespace(topic_id=Uuid(0, 0), partitions=[None]))
        return futures

    monkeypatch.setattr(cluster, "_admin", SimpleNamespace(describe_topics=describe_topics))
    assert {topic.id for topic in cluster.describe(["a", "b"]).values()} == {"name:a", "name:b"}


def test_a_topic_that_may_not_be_described_is_told_to_those_who_ask_for_it_and_refused_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({"bootstrap.servers": "127.0.0.1:1"})
    refused: Future[Any] = Future()
    refused.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    found: Future[Any] = Future()
    found.set_result(SimpleNamespace(topic_id=Uuid(1, 2), partitions=[0, 1]))
    answers = SimpleNamespace(describe_topics=lambda *_, **__: {"a": refused, "b": found}, poll=lambda _: 0)
    monkeypatch.setattr(cluster, "_admin", answers)
    denied = set[str]()
    assert [(topic.name, topic.partitions) for topic in cluster.describe(["a", "b"], denied).values()] == [("b", 2)]
    assert denied == {"a"}
    with pytest.raises(ClusterError) as raised:
        cluster.describe(["a", "b"])
    assert raised.value.name == "TOPIC_AUTHORIZATION_FAILED"
