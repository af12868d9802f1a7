"""What a JSON topic does when Kafka refuses: it says so as its own error, and the next call begins anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestration.kafka.cluster import Cluster
from orchestration.kafka.json_topics import JsonTopic, JsonTopicError
from tests.unit.publisher_kit.mock_cluster import Api, MockCluster

TOPIC = "decisions"
SECRET = "hunter2-s3cret"


def json_topic(mock_cluster: MockCluster, **kafka: str) -> JsonTopic:
    properties = {"bootstrap.servers": mock_cluster.bootstrap, "log_level": "0"}
    return JsonTopic(Cluster(properties, timeout_seconds=5), {**properties, **kafka}, TOPIC)


def records(*keys: str) -> list[tuple[str, str]]:
    return [(key, "{}") for key in keys]


def test_records_arrive_in_their_order(mock_cluster: MockCluster) -> None:
    mock_cluster.create(TOPIC)

    assert json_topic(mock_cluster).write(records("a", "b", "c")) == 3

    assert [message.key() for message in mock_cluster.read(TOPIC, 3)] == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("api", "code", "why"),
    [
        (Api.INIT_PRODUCER_ID, 31, "Cluster authorization failed"),
        (Api.PRODUCE, 45, "sequence desynchronization"),
        (Api.PRODUCE, 29, "Topic authorization failed"),
    ],
)
def test_a_producer_that_is_broken_is_told_of_and_replaced(mock_cluster: MockCluster, api: Api, code: int, why: str) -> None:
    mock_cluster.create(TOPIC)
    mock_cluster.fail(api, code)
    topic = json_topic(mock_cluster)
    # several, as a report that is read after what is fatal would make a SystemError of it
    with pytest.raises(JsonTopicError, match=f"{TOPIC}: .*{why}"):
        topic.write(records("a", "b", "c"))

    assert topic.write(records("d", "e")) == 2

    assert [message.key() for message in mock_cluster.read(TOPIC, 2)] == [b"d", b"e"]


def test_properties_that_the_client_rejects_are_an_error_of_the_topic_and_keep_the_secret(mock_cluster: MockCluster) -> None:
    mock_cluster.create(TOPIC)
    topic = json_topic(mock_cluster, **{"security.protocol": SECRET, "sasl.password": SECRET})

    with pytest.raises(JsonTopicError, match=f"{TOPIC}: ") as refused:
        topic.write(records("a"))

    assert SECRET not in str(refused.value)


def test_a_source_that_fails_is_told_as_it_is(mock_cluster: MockCluster) -> None:
    mock_cluster.create(TOPIC)

    def failing() -> Iterator[tuple[str, str]]:
        yield "lost", "{}"
        raise OSError("the disk is gone")

    topic = json_topic(mock_cluster)
    with pytest.raises(OSError, match="the disk is gone"):
        topic.write(failing())

    assert topic.write(records("a")) == 1


def test_a_topic_that_is_missing_is_not_waited_for(mock_cluster: MockCluster) -> None:
    topic = json_topic(mock_cluster)
    with pytest.raises(JsonTopicError, match=f"{TOPIC}: there is no such topic"):
        topic.write(records("a"))

    mock_cluster.create(TOPIC)

    assert topic.write(records("a")) == 1
