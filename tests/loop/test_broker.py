"""The embedded broker: real transactions, restarts with its data whatever ended it, and errors that say what to do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from orchestration.demo.broker import Broker, BrokerSettings, remembered_port
from orchestration.demo.kafka_process import BrokerError, find_java


def write(bootstrap: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    problems: list[object] = []
    producer.produce(topic, value, on_delivery=lambda problem, _: problems.append(problem))
    producer.flush(20)
    assert problems == [None]


def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    deadline = time.monotonic() + 20
    while len(found) < count and time.monotonic() < deadline:
        record = consumer.poll(0.5)
        if record is not None and not record.error():
            found.append(record.value())
    consumer.close()
    return found


def test_transactions_commit_and_abort(kafka: dict[str, str], create_topic: Callable[..., str]) -> None:
    topic = create_topic("orders")
    producer = Producer({**kafka, "transactional.id": topic})
    producer.init_transactions(20)
    for value, keep in [(b"1", True), (b"2", False), (b"3", True)]:
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush()
        if keep:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    assert read(kafka["bootstrap.servers"], topic, 2) == [b"1", b"3"]


def test_a_topic_is_not_made_by_writing_to_it(kafka: dict[str, str], topic_prefix: str) -> None:
    topic = f"{topic_prefix}typo"
    problems: list[object] = []
    producer = Producer({**kafka, "message.timeout.ms": 3000})
    producer.produce(topic, b"v", on_delivery=lambda problem, _: problems.append(problem))
    producer.flush(20)
    assert [problem is None for problem in problems] == [False]
    assert topic not in AdminClient({**kafka}).list_topics(timeout=10).topics


@pytest.fixture
def served(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that runs the broker of the test's directory, as `redrive broker` does; up when the test begins."""
    code = "import sys; from pathlib import Path; from orchestration.demo.broker import serve; serve(Path(sys.argv[1]))"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "listens on" in process.stdout.readline()
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_it_comes_back_with_its_data_after_kill_9_of_its_parent_and_of_itself(tmp_path: Path, served: subprocess.Popen[str]) -> None:
    port = remembered_port(tmp_path)
    address = f"127.0.0.1:{port}"
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result()
    write(address, "t", b"before")

    with pytest.raises(BrokerError, match=rf"another process runs the broker of .*{port}"):
        Broker(BrokerSettings(tmp_path)).start()

    served.kill()
    served.wait()
    with Broker(BrokerSettings(tmp_path)) as broker:
        assert broker.bootstrap_servers == address
        assert read(address, "t", 1) == [b"before"]
        write(address, "t", b"between")

        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGKILL)
        while broker.exit_code is None:
            time.sleep(0.01)
        assert broker.exit_code == -signal.SIGKILL
        assert broker.pid is None
        broker.start()
        assert broker.bootstrap_servers == address
        assert read(address, "t", 2) == [b"before", b"between"]
    assert broker.pid is None


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(BrokerError, match=f"port {port} on 127.0.0.1 is taken by another program"):
            Broker(BrokerSettings(tmp_path, port=port)).start()
    assert remembered_port(tmp_path) is None


def test_a_broker_that_ends_early_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=r"ended with exit code 1 while starting(.|\n)*heap"):
        Broker(BrokerSettings(tmp_path, heap="1k")).start()
    with pytest.raises(BrokerError, match=r"ended with exit code 1 while starting(.|\n)*num\.io\.threads"):
        Broker(BrokerSettings(tmp_path, properties={"num.io.threads": "none"})).start()


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx\nopenjdk version "21" 2023-09-19', None),
        ('java version "1.8.0_412"', r"needs Java 17 or newer, and .*/bin/java is Java 8: install one"),
        ('openjdk version "11.0.2" 2019-01-15', r"needs Java 17 or newer, and .*/bin/java is Java 11: install one"),
        ("Unable to locate a Java Runtime.", r"needs Java 17 or newer, and .* does not say which it is"),
        (None, r"needs Java 17 or newer, and there is no bin/java in JAVA_HOME"),
    ],
)
def test_java_is_checked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str | None, expected: str | None) -> None:
    if says is not None:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\n")
        java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if expected is None:
        assert find_java() == tmp_path / "bin" / "java"
    else:
        with pytest.raises(BrokerError, match=expected):
            find_java()


def test_without_any_java_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrokerError, match="there is no java on the PATH: install one"):
        find_java()
