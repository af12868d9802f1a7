"""The frameworks of docs/connect themselves report failures, and process the retries: the examples are compiled and run.

Their records are read here as they are; tests/dbt/test_dialects.py reads bytes that the tests write.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.loop.harness import Redrive

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.slow

with_java = pytest.mark.skipif(
    not (shutil.which("mvn") and shutil.which("javac")), reason="needs Maven and a JDK (Debian: apt-get install maven)"
)
with_go = pytest.mark.skipif(not shutil.which("go"), reason="needs Go, 1.24 or later")
with_node = pytest.mark.skipif(not shutil.which("npm"), reason="needs Node.js, 18 or later, with npm")

SOURCES = """streams,"^frameworks[a-z]*[.]streams-reports$",streams,billing,"^frameworks[a-z]*[.]orders",earliest,false,
sink,"^frameworks[a-z]*[.]connect-reports$",connect,connect-orders-sink,"^frameworks[a-z]*[.]orders",earliest,false,
letters,"^frameworks[a-z]*[.]orders-dlt$",spring-retry,,"^frameworks[a-z]*[.]orders",earliest,false,dead
"""

VALUES = (b"one", b"two", b"three")


@cache
def classpath(example: str) -> str:
    """The class path of an example: its libraries, which Maven gets, and its classes, which are compiled."""
    target = Path(mkdtemp(prefix=f"redrive-{example}-"))
    folder = EXAMPLES / example
    command = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies", f"-DoutputDirectory={target / 'lib'}"]
    subprocess.run(command, check=True, timeout=600)
    sources = [str(path) for path in folder.glob("*.java")]
    if sources:
        subprocess.run(["javac", "-cp", f"{target / 'lib'}/*", "-d", str(target / "classes"), *sources], check=True, timeout=300)
    return f"{target / 'lib'}/*:{target / 'classes'}"


@dataclass
class Program:
    """A program that runs."""

    process: subprocess.Popen[bytes]
    output: Path

    @property
    def said(self) -> str:
        """All that it has printed."""
        return self.output.read_text(encoding="utf-8")


def java(example: str, main: str, *arguments: str, **properties: str) -> AbstractContextManager[Program]:
    """A Java program, as `runs` has it."""
    given = [f"-D{name}={value}" for name, value in {"org.slf4j.simpleLogger.defaultLogLevel": "warn", **properties}.items()]
    return runs("java", "-cp", classpath(example), *given, main, *arguments)


@contextmanager
def runs(*command: str) -> Iterator[Program]:
    """A program that runs inside the `with` block."""
    # into a file: a pipe that nobody reads would stop it when it is full
    output = Path(mkdtemp(prefix="redrive-output-")) / "output"
    with output.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            yield Program(process, output)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def frameworks(redrive: Redrive) -> Iterator[Redrive]:
    seed = redrive.loop.settings.seeds / "sources.csv"
    before = seed.read_text(encoding="utf-8")
    seed.write_text(before + SOURCES, encoding="utf-8")
    yield redrive
    seed.write_text(before, encoding="utf-8")
    redrive.settle()


def processed(redrive: Redrive, program: Program) -> list[str]:
    """Runs ticks until the program ends; what it has processed."""
    redrive.until(lambda: program.process.poll() is not None, "it has processed all retries", 200)
    assert program.process.returncode == 0, program.said[-3000:]
    return sorted(line.split()[1] for line in program.said.splitlines() if line.startswith("processed "))


def orders(redrive: Redrive, domain: str) -> Mapping[bytes, tuple[int, int]]:
    """Writes a record for each of VALUES; their partitions and offsets."""
    redrive.domain(domain, partitions=2)
    return {value: redrive.write(f"{domain}.orders", b"k", value, [("tenant", b"acme")], 1) for value in VALUES}


def properties(redrive: Redrive, domain: str, reports: str = "") -> dict[str, str]:
    """The system properties of an example. reports: the last part of the name of its report topic, where it has one."""
    return {
        "brokers": redrive.kafka["bootstrap.servers"],
        "reports": f"{domain}.{reports}",
        "topics": f"{domain}.orders,{domain}.orders-billing-retry",
        "group": "billing",
        "count": str(len(VALUES)),
    }


def said(redrive: Redrive, domain: str) -> list[object]:
    """What the first reports of a domain's messages said."""
    return [
        (row["message_id"], row["error_class"], row["error_message"])
        for row in redrive.sql(f"select * from attempts where attempt = 1 and original_topic = '{domain}.orders' order by message_id")
    ]


def reporting(redrive: Redrive, domain: str, program: Callable[..., AbstractContextManager[Program]], error_class: str) -> None:
    """A program of docs/connect reports the failures of records, and processes their retries."""
    written = orders(redrive, domain)
    topics = (f"{domain}.orders", f"{domain}.orders-billing-retry")
    with program(redrive.kafka["bootstrap.servers"], f"{domain}.reports", "billing", "3", *topics) as running:
        assert processed(redrive, running) == ["one", "three", "two"]
    assert said(redrive, domain) == [
        (f"billing:{domain}.orders/1/{offset}", error_class, "no answer within 2 s") for _, offset in written.values()
    ]
    for record in redrive.read(f"{domain}.orders-billing-retry"):
        assert (record.key, record.partition, record.own_headers) == (b"k", 1, (("tenant", b"acme"),))


@with_java
def test_plain_java(frameworks: Redrive) -> None:
    reporting(frameworks, "frameworksjava", partial(java, "java", "ReportingConsumer"), "java.util.concurrent.TimeoutException")


@with_go
def test_go(frameworks: Redrive, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "go", tmp_path / "go")
    for command in (["mod", "tidy"], ["build", "-o", "consumer"]):
        subprocess.run(["go", *command], cwd=tmp_path / "go", check=True, timeout=400)
    reporting(frameworks, "frameworksgo", partial(runs, str(tmp_path / "go" / "consumer")), "*errors.errorString")


@with_node
def test_node(frameworks: Redrive, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "node", tmp_path / "node")
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=tmp_path / "node", check=True, timeout=400)
    reporting(frameworks, "frameworksnode", partial(runs, "node", str(tmp_path / "node" / "reporting_consumer.js")), "Error")


@with_java
def test_spring_with_a_recoverer(frameworks: Redrive) -> None:
    written = orders(frameworks, "frameworksspring")
    with java("spring", "SpringConsumer", **properties(frameworks, "frameworksspring", "spring-reports")) as program:
        assert processed(frameworks, program) == ["one", "three", "two"]
    found = said(frameworks, "frameworksspring")
    assert [one[:2] for one in found] == [  # type: ignore[index]
        (f"billing:frameworksspring.orders/1/{offset}", "java.lang.IllegalStateException") for _, offset in written.values()
    ]
    for record in frameworks.read("frameworksspring.orders-billing-retry"):
        assert (record.key, record.partition, record.own_headers) == (b"k", 1, (("tenant", b"acme"),))


@with_java
def test_dead_letters_of_spring_s_retry_topics_are_adopted(frameworks: Redrive) -> None:
    written = orders(frameworks, "frameworksretryable")
    given = {**properties(frameworks, "frameworksretryable"), "topics": "frameworksretryable.orders"}
    with java("spring", "RetryableConsumer", **given) as program:
        processed(frameworks, program)
    letters = "select * from dead_letters where original_topic = 'frameworksretryable.orders'"
    adopted = frameworks.until(lambda: rows if len(rows := frameworks.sql(letters)) == 3 else [], "all are adopted")
    assert sorted((row["message_id"], row["error_class"]) for row in adopted) == sorted(
        (f"billing:frameworksretryable.orders/1/{offset}", "java.lang.IllegalStateException") for _, offset in written.values()
    )


@with_java
def test_kafka_streams(frameworks: Redrive) -> None:
    written = orders(frameworks, "frameworksstreams")
    frameworks.topics("frameworksstreams.streams-reports", "frameworksstreams.streams-reports.dlq")
    with java("streams", "StreamsConsumer", **properties(frameworks, "frameworksstreams", "streams-reports")) as program:
        assert processed(frameworks, program) == ["one", "three", "two"]
    found = said(frameworks, "frameworksstreams")
    assert [one[0] for one in found] == [f"billing:frameworksstreams.orders/1/{offset}" for _, offset in written.values()]  # type: ignore[index]
    assert {one[1] for one in found} == {"java.lang.IllegalStateException"}  # type: ignore[index]


@with_java
def test_kafka_connect(frameworks: Redrive, tmp_path: Path) -> None:
    frameworks.domain("frameworksconnect")
    retries = "frameworksconnect.orders-connect-orders-sink-retry"
    frameworks.topics("frameworksconnect.connect-reports", "frameworksconnect.connect-reports.dlq", retries)
    _, offset = frameworks.write("frameworksconnect.orders", b"k", b"no json", [("tenant", b"acme")])
    worker, sink = tmp_path / "worker.properties", tmp_path / "sink.properties"
    text = (EXAMPLES / "kafka_connect" / "worker.properties").read_text(encoding="utf-8")
    text = text.replace("localhost:9092", frameworks.kafka["bootstrap.servers"]).replace("connect.offsets", str(tmp_path / "offsets"))
    worker.write_text(text, encoding="utf-8")
    text = (EXAMPLES / "kafka_connect" / "sink.properties").read_text(encoding="utf-8")
    text = text.replace("topics=orders", f"topics=frameworksconnect.orders,{retries}").replace("orders.txt", str(tmp_path / "out.txt"))
    sink.write_text(text.replace("orders.failures", "frameworksconnect.connect-reports"), encoding="utf-8")
    with java("kafka_connect", "org.apache.kafka.connect.cli.ConnectStandalone", str(worker), str(sink)):
        # an error of conversion is a poison: the same bytes fail again
        (letter,) = frameworks.dead("frameworksconnect", 1)
    assert (letter.key, letter.value, letter.own_headers) == (b"k", b"no json", (("tenant", b"acme"),))
    (row,) = frameworks.sql("select * from attempts where original_topic = 'frameworksconnect.orders'")
    assert (row["message_id"], row["attempt"]) == (f"connect-orders-sink:frameworksconnect.orders/0/{offset}", 1)
    assert (row["error_class"], row["error_kind"]) == ("org.apache.kafka.connect.errors.DataException", "poison")
