"""One real broker for all tests of a session; each test makes its own topics on it, so none sees another's records."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from orchestration.demo.broker import Broker, BrokerSettings
from orchestration.demo.postgres import Postgres
from orchestration.kafka.cluster import Cluster, ClusterError
from tests.loop.harness import Redrive
from tests.loop.outbox_kit import TABLE, Shop, with_outboxes


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker. Without ACLs, every user may do everything. A test that stops the broker starts it again."""
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with Broker(BrokerSettings(tmp_path_factory.mktemp("broker"), properties=authorizer)) as running:
        yield running


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A running database for a module, which is marked with `needs_postgres`."""
    with Postgres() as running:
        yield running


@pytest.fixture(scope="module")
def shop(postgres: Postgres) -> Shop:
    """The application of a module, with the relay's table `orders_outbox`."""
    made = Shop(postgres)
    made.sql(TABLE.format(name="orders_outbox"))
    return made


@pytest.fixture(scope="module")
def outbox(request: pytest.FixtureRequest, redrive: Redrive, shop: Shop, postgres: Postgres) -> Iterator[str]:
    """The loop of the tests reads that table, as the outbox whose name the module has in OUTBOX. Returns the name."""
    name: str = request.module.OUTBOX
    columns = "outbox,connection,table,profile,columns,topic,write_back"
    with with_outboxes(redrive, postgres, f"{columns}\n{name},shop,orders_outbox,eventferry,last_error=last_error,,\n"):
        yield name


@pytest.fixture
def kafka(broker: Broker) -> dict[str, str]:
    """The base properties for Kafka clients."""
    return {"bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture
def topic_prefix() -> str:
    """A unique prefix for the topics and groups of this test."""
    return f"t{uuid.uuid4().hex[:8]}-"


def _answers(kafka: dict[str, str], topic: str, partitions: int) -> bool:
    """Whether all partitions of a topic tell their offsets."""
    cluster = Cluster(kafka)
    try:
        (described,) = cluster.describe([topic]).values()
        return len(cluster.ends(described.all_partitions)) == partitions
    except (ClusterError, ValueError):
        return False


@pytest.fixture
def create_topic(kafka: dict[str, str], topic_prefix: str) -> Iterator[Callable[..., str]]:
    """``create_topic("orders", partitions=3, **{"max.message.bytes": "2000000"})`` returns the topic's whole name.

    Deleted after the test: each partition keeps files open in the broker.
    """
    admin = AdminClient({**kafka})
    created: list[str] = []

    def create(name: str, partitions: int = 1, **config: str) -> str:
        topic = f"{topic_prefix}{name}"
        admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result()
        created.append(topic)
        # a broker that is busy may not lead the partitions yet, and says nothing about them
        deadline = time.monotonic() + 30
        while not _answers(kafka, topic, partitions):
            assert time.monotonic() < deadline, f"no partition of {topic} answers"
            time.sleep(0.05)
        return topic

    yield create
    if created:
        for deleted in admin.delete_topics(created).values():
            deleted.result()


@pytest.fixture(scope="session")
def redrive(broker: Broker, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Redrive]:
    """One warm loop for all tests; each has topics of its own, `<domain>.orders` and so on."""
    running = Redrive.start({"bootstrap.servers": broker.bootstrap_servers}, tmp_path_factory.mktemp("redrive"), pytestconfig.rootpath)
    yield running
    running.close()
