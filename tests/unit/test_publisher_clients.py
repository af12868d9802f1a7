"""Kafka clients: all are built in one place, which passes their properties on as they were configured."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestration.kafka.cluster import Cluster
from orchestration.settings import load_settings
from publisher import PublisherSettings, clients, make_client
from publisher.clients import Background, make_admin, make_keeper, make_producer, make_reader
from publisher.redaction import SECRET_NAME
from tests.unit.publisher_kit.mock_cluster import MockCluster
from tests.unit.publisher_kit.rows import outcomes, send, settings_for

PROJECT = Path(__file__).parents[2]

# Neither in the order of the alphabet nor of the numbers, with a double and with blanks: nothing may sort, sift or trim them.
SERVERS = "broker-3:9092,broker-1:9092, broker-2:9093,broker-10:9092,broker-1:9092"

MAKERS: dict[str, Callable[[PublisherSettings], Any]] = {
    "producer": lambda settings: make_producer(settings, None, 1_000, Background()),
    "transactional producer": lambda settings: make_producer(settings, "prefix.instance.0", 1_000, Background()),
    "admin": lambda settings: make_admin(settings, Background()),
    "consumer of a group's offsets": lambda settings: make_keeper(settings, "group", Background()),
    "consumer of original records": lambda settings: make_reader(settings, Background()),
}


@pytest.mark.parametrize("what", MAKERS)
def test_a_client_is_given_its_servers_in_the_configured_order(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []
    for name in ("Producer", "Consumer", "AdminClient"):
        monkeypatch.setattr(clients, name, given.append)

    MAKERS[what](PublisherSettings(kafka={"bootstrap.servers": SERVERS}, error_kinds={}))

    assert [properties["bootstrap.servers"] for properties in given] == [SERVERS]


def test_the_loop_s_clients_are_given_their_servers_in_the_configured_order(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setenv("REDRIVE_KAFKA__BOOTSTRAP_SERVERS", SERVERS)
    settings = load_settings()
    monkeypatch.setattr("orchestration.kafka.clients.AdminClient", given.append)

    Cluster(settings.kafka_properties)
    make_client(given.append, settings.kafka_properties, settings.kafka_properties)

    assert [properties["bootstrap.servers"] for properties in given] == [SERVERS] * 2
    assert settings.kafka_java_properties["bootstrap.servers"] == SERVERS


@pytest.mark.parametrize("transactions", [True, False])
def test_a_server_that_is_away_does_not_keep_the_next_from_being_asked(mock_cluster: MockCluster, transactions: bool) -> None:
    topic = mock_cluster.create("t")
    settings = settings_for(f"127.0.0.1:1,{mock_cluster.bootstrap}", transactions=transactions, generation=1, fence_topics=(topic,))

    assert outcomes(send([{"topic": topic}], settings)) == {"d0": "delivered"}


def test_no_client_prints_by_itself_unless_it_is_told_to() -> None:
    given: list[Any] = []

    make_client(given.append, {}, {})
    make_client(given.append, {"log_level": "7"}, {"log_level": "7"})

    assert [properties["log_level"] for properties in given] == ["0", "7"]


def test_only_one_module_builds_clients() -> None:
    """The examples are what a user's own services look like: they build theirs."""
    builds = re.compile(r"\b(?:Producer|Consumer|AdminClient)\(")
    files = [path for folder in ("orchestration", "publisher", "bench") for path in (PROJECT / folder).rglob("*.py")]

    assert [str(path.relative_to(PROJECT)) for path in files if builds.search(path.read_text())] == []


def test_one_module_of_the_loop_knows_what_its_clients_need() -> None:
    files = [path for path in (PROJECT / "orchestration").rglob("*.py") if "make_client" in path.read_text(encoding="utf-8")]

    assert [str(path.relative_to(PROJECT)) for path in files] == ["orchestration/kafka/clients.py"]


@pytest.mark.parametrize(
    ("option", "more"), [("spark.redaction.regex", ""), ("spark.sql.redaction.options.regex", "url|")], ids=["everywhere", "options"]
)
def test_spark_takes_the_same_properties_for_secret(option: str, more: str) -> None:
    profile = re.sub(r"\{\{.*?\}\}", "", (PROJECT / "profiles.yml").read_text())
    (parameters,) = (output["server_side_parameters"] for output in yaml.safe_load(profile)["redrive"]["outputs"].values())

    assert parameters[option] == f"(?i){more}{SECRET_NAME}"
