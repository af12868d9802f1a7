"""No Kafka client prints anything by itself: a broker that is away is told by the command's own lines."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from orchestration.settings import load_settings
from publisher import PublisherSettings
from publisher.clients import Background, make_admin, make_producer


@pytest.fixture
def nobody() -> str:
    """An address at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize("client", ["producer", "admin", "consumer", "publisher", "publisher's admin"])
def test_a_broker_that_is_away_prints_no_line(nobody: str, capfd: pytest.CaptureFixture[str], client: str) -> None:
    properties = dict(load_settings(kafka={"bootstrap.servers": nobody}).kafka_properties)
    settings = PublisherSettings(kafka=properties, error_kinds={})
    refused = Background()
    with_callback: dict[str, Any] = {**properties, "error_cb": refused}
    made: Any
    if client == "producer":
        made = Producer(with_callback)
    elif client == "admin":
        made = AdminClient(with_callback)
    elif client == "consumer":
        made = Consumer({**with_callback, "group.id": "g"})
    elif client == "publisher":
        made = make_producer(settings, "prefix.instance.0", 1_000_000, refused)
    else:
        made = make_admin(settings, refused)
    for _ in range(100):
        made.poll(0.1)
        if refused.last is not None:
            break
    assert refused.last is not None
    told = capfd.readouterr()
    assert (told.out, told.err) == ("", "")
