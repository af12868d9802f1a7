"""What the process of a broker needs: Java, Kafka's jars, its properties and its formatted storage."""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from orchestration.files import cache_directory, write_atomically
from orchestration.java import java_program

KAFKA_VERSION: Final = "4.1.1"
# kafka_2.13 has a logging API without an implementation: without slf4j-simple, a broker that fails would log nothing.
_COORDINATES: Final = f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}+org.slf4j:slf4j-simple:1.7.36"
_JAVA_AT_LEAST: Final = 17
HOST: Final = "127.0.0.1"
# Below the range of ports for outgoing connections (Linux from 32768, macOS from 49152). A port within it
# can be taken while the broker is down, even by a client that waits for the broker and connects to itself by chance.
_PORTS: Final = range(20_000, 30_000)
NODE_ID: Final = 1


class BrokerError(Exception):
    """The broker could not be started, or ended by itself. The text says why, and what to do."""


def find_java() -> Path:
    """The Java to use: that of JAVA_HOME, else of the PATH. Raises BrokerError if it is missing, or older than 17."""
    need = f"the broker needs Java {_JAVA_AT_LEAST} or newer"
    fix = "install one (any OpenJDK build will do), or point JAVA_HOME at it"
    home = os.environ.get("JAVA_HOME")
    found = java_program()
    if found is None:
        where = f"there is no bin/java in JAVA_HOME ({home})" if home else "there is no java on the PATH"
        raise BrokerError(f"{need}, and {where}: {fix}")
    try:
        answer = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BrokerError(f"{need}, and {found} can't be run ({error}): {fix}") from None
    # `openjdk version "17.0.15" 2025-04-15`, `java version "1.8.0_412"`; environment notices may stand before it
    version = re.search(r'version "(?:1\.)?(\d+)[^"]*"', answer.stderr + answer.stdout)
    if version is None:
        raise BrokerError(f"{need}, and {found} does not say which it is (exit code {answer.returncode}): {fix}")
    if int(version[1]) < _JAVA_AT_LEAST:
        raise BrokerError(f"{need}, and {found} is Java {version[1]}: {fix}")
    return Path(found)


def kafka_jars() -> list[Path]:
    """The class path of the broker, downloaded once. Raises BrokerError if that fails."""
    jars = cache_directory() / f"kafka-{KAFKA_VERSION}"
    if not jars.is_dir():
        _download(jars)
    return sorted(jars.glob("*.jar"))


def _download(target: Path) -> None:
    # Imported here: it takes a while, and is needed once on a machine.
    from jgo.config import GlobalSettings
    from jgo.constants import MAVEN_CENTRAL_URL
    from jgo.env import EnvironmentBuilder
    from jgo.maven import MavenContext

    print(
        f"redrive: downloads Apache Kafka {KAFKA_VERSION}, about 45 MB, once (kept in {target.parent})",
        file=sys.stderr,
        flush=True,
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    # Into a temporary directory, which is renamed when it is complete: jgo takes a file that an interrupted download left behind for a
    # complete one. It also keeps poms without jars out of ~/.m2, where Spark's resolver would fail on them.
    with tempfile.TemporaryDirectory(prefix="download-", dir=target.parent) as scratch:
        context = MavenContext(
            repo_cache=Path(scratch) / "maven",
            # a company's mirror, if jgo's own configuration file names one
            remote_repos={"central": MAVEN_CENTRAL_URL} | GlobalSettings.load().repositories,
            timeout=30,
        )
        try:
            environment = EnvironmentBuilder(context, cache_dir=Path(scratch) / "jgo").from_endpoint(_COORDINATES)
        except Exception as error:
            raise BrokerError(
                f"could not download Apache Kafka {KAFKA_VERSION}: {str(error) or type(error).__name__}; "
                "it needs Maven Central, or a mirror of it named `central` in [repositories] of jgo's configuration"
            ) from error
        complete = Path(scratch) / "complete"
        complete.mkdir()
        # All jars: jgo divides them into a class path and a module path, and Kafka runs from the class path only.
        for jar in environment.all_jars:
            shutil.copyfile(jar, complete / jar.name)
        try:
            complete.rename(target)
        except OSError as error:
            # Another process has downloaded the same jars in the meantime.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


def java_command(java: Path, jars: Sequence[Path], heap: str, main: str, *arguments: str) -> list[str]:
    return [
        str(java),
        f"-Xmx{heap}",
        "-Xms64m",
        # one collector thread and little memory beside the heap: it shares two cores with Spark
        "-XX:+UseSerialGC",
        # a broker without memory should end, and be started again, rather than work partly
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
        *("-cp", os.pathsep.join(str(jar) for jar in jars)),
        main,
        *arguments,
    ]


def write_properties(directory: Path, port: int, changes: Mapping[str, str], listeners: Sequence[str] = ()) -> Path:
    # Only this process connects to the controller, so its port may differ at each start.
    controller = free_port()
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@{HOST}:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join([f"PLAINTEXT://{HOST}:{port}", *listeners, f"CONTROLLER://{HOST}:{controller}"]),
        "advertised.listeners": ",".join([f"PLAINTEXT://{HOST}:{port}", *listeners]),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(directory / "data"),
        # a topic that was not created is a mistake, and must cause an error
        "auto.create.topics.enable": "false",
        # one node, so there are no replicas; few partitions, as each costs files and start-up time
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        # delays that only help many consumers
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        # a transaction that has timed out is aborted within this time; by default up to 10 s later
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        # after kill -9, a start is registered only when the session of the old process has expired; by default after 9 s
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # by default 128 MB, which is a quarter of the heap
        "log.cleaner.dedupe.buffer.size": str(8 * 1024 * 1024),
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
    }
    path = directory / "server.properties"
    # Backslashes start an escape in this format; nothing else in a value needs one.
    lines = (f"{name}={value}".replace("\\", "\\\\") + "\n" for name, value in {**properties, **changes}.items())
    write_atomically(path, "".join(lines))
    return path


def format_storage(java: Path, jars: Sequence[Path], directory: Path, properties: Path) -> None:
    """Formats the data directory with a cluster id, which KRaft requires before the first start; only once."""
    data = directory / "data"
    if data.exists():
        return
    # Formatted under another name and then renamed, so that an interruption never leaves a partly formatted directory.
    fresh = directory / "data.formatting"
    shutil.rmtree(fresh, ignore_errors=True)
    text = properties.read_text()
    beside = directory / "format.properties"
    beside.write_text(re.sub(r"(?m)^log\.dirs=.*$", lambda _: f"log.dirs={fresh}".replace("\\", "\\\\"), text))
    cluster_id = "redrive-" + "".join(random.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=14))
    command = java_command(java, jars, "128m", "kafka.tools.StorageTool", "format", "--cluster-id", cluster_id, "--config", str(beside))
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    beside.unlink()
    if done.returncode != 0:
        output = (done.stdout + done.stderr).strip()
        raise BrokerError(f"could not format the broker's storage in {directory} (exit code {done.returncode}): {output}")
    fresh.rename(data)


def free_port() -> int:
    for port in random.sample(_PORTS, k=200):
        if is_free(port):
            return port
    raise BrokerError(f"found no free port from {_PORTS.start} to {_PORTS.stop - 1} on {HOST}: choose one yourself")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the broker does: connections in TIME_WAIT don't count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True
