"""The whole loop on a real broker, for tests that report a failure, run ticks until something has happened, and read the topics."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from orchestration.loop.loop import Loop
from orchestration.settings import load_settings
from orchestration.tables.rows import collected
from tests.sessions import stop_session

Headers = Sequence[tuple[str, bytes | None]]
T = TypeVar("T")

# Every test has its own domain, a prefix of topics: `ladder.orders` and so on. One source reads the reports of all domains.
SEEDS = {
    "sources": """source,topic,dialect,consumer_group,speaks_for,start,states_kind,adopt
reports,"^[a-z]+[.]reports$",redrive,,"^[a-z]+[.]orders$",earliest,true,
spring,"^[a-z]+[.]spring-reports$",spring,,"^[a-z]+[.]orders$",earliest,true,
graves,"^[a-z]+[.]graves$",spring,,"^[a-z]+[.]orders$",earliest,false,dead
""",
    "routes": """\
topic,consumer_group,error_kind,retry_policy,publish_policy,retry_topic,dead_letter_topic,dead_letter_headers,privacy,purge_after
*,*,*,default,publish,{topic}-{group}-retry,{topic}.dlq,,,
*,*,blocking,publish,publish,{topic}-{group}-retry,{topic}.dlq,,,
^lanes,*,*,slow,publish,{topic}-{group}-retry,{topic}.dlq,,,
^lanesfar,*,*,far,publish,{topic}-{group}-retry,{topic}.dlq,,,
^laneslater,*,*,later,publish,{topic}-{group}-retry,{topic}.dlq,,,
^lanesordered,*,*,slower,publish,{topic}-{group}-retry,{topic}.dlq,,,
^lanes,*,blocking,slow,publish,{topic}-{group}-retry,{topic}.dlq,,,
letterssafi.orders,*,*,default,publish,{topic}-{group}-retry,{topic}.dlq,safi,,
lettersspring.orders,*,*,default,publish,{topic}-{group}-retry,{topic}-{group}-dlt,spring,,
lettersconnect.orders,*,*,default,publish,{topic}-{group}-retry,{topic}.dlq,connect+stack,,
lettersprivate.orders,*,*,default,publish,{topic}-{group}-retry,{topic}.dlq,,secret,
purgeafter.orders,*,*,default,publish,{topic}-{group}-retry,{topic}.dlq,,,1ms
""",
    "dead_letter_topics": """error_class,topic,consumer_group,dead_letter_topic
letters.PoisonError,^letters,billing,letters.{topic}.bad
""",
    "redrive_rules": """error_class,topic,consumer_group,max_life_cycles,delay,why
KeyError,"^(triage|dagster)[.]orders$",*,2,1ms,it helped before
,*,*,2,365d,whatever it was is gone after a year
""",
    "privacy": """name,stack,message,payload,headers
secret,drop,drop,drop,authorization
""",
    "retry_policies": """policy,definition
default,"exponential(initial=1s, factor=2, max=60s, jitter=0, attempts=5)"
publish,"exponential(initial=1s, factor=2, max=60s, jitter=0)"
slow,"fixed(40s x 5)"
slower,"fixed(45s x 5)"
far,"fixed(120s x 5)"
later,"fixed(290s x 5)"
""",
}


@dataclass(frozen=True)
class Record:
    """A record in Kafka."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def header(self, name: str) -> str | None:
        """The last header of a name, as text."""
        values = [value for key, value in self.headers if key == name and value is not None]
        return values[-1].decode() if values else None

    @property
    def own_headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """The message's own headers, without ours."""
        return tuple((key, value) for key, value in self.headers if not key.startswith(("redrive-", "dlq-")))


def write_seeds(directory: Path, project: Path, domain: str = "[a-z]+") -> Path:
    """The project's rules, with the sources, routes and policies of the tests; returns the directory, which is made.

    domain: the one whose report topics the sources read. By default they read those of all tests.
    """
    directory.mkdir(parents=True)
    for path in (project / "dbt_project" / "seeds").glob("*.csv"):
        text = SEEDS.get(path.stem) or path.read_text(encoding="utf-8")
        (directory / path.name).write_text(text.replace("[a-z]+", domain) if path.stem == "sources" else text, encoding="utf-8")
    return directory


def deliveries(records: Iterable[Record]) -> Counter[str | None]:
    """How often each delivery was sent."""
    return Counter(record.header("redrive-delivery") for record in records)


class Topics:
    """Topics on a broker, with actions of producers and consumers beside the loop."""

    def __init__(self, kafka: dict[str, str]) -> None:
        self.kafka = kafka
        self._producer = Producer({**kafka, "message.max.bytes": 8_000_000, "enable.idempotence": True})

    def close(self) -> None:
        """Flushes the producer."""
        self._producer.flush(10)

    def topics(self, *names: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Creates topics. By default they take records of four megabytes."""
        admin = AdminClient({**self.kafka})
        settings = {"max.message.bytes": "4000000", **(config or {})}
        for made in admin.create_topics([NewTopic(name, partitions, 1, config=settings) for name in names]).values():
            made.result()

    def domain(self, name: str, partitions: int = 1) -> None:
        """All topics of a test: orders, reports, retries of the group `billing`, dead letters."""
        self.topics(
            f"{name}.orders",
            f"{name}.orders-billing-retry",
            f"{name}.orders.dlq",
            f"{name}.reports",
            f"{name}.reports.dlq",
            f"{name}.spring-reports",
            f"{name}.spring-reports.dlq",
            partitions=partitions,
        )

    def write(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = (), partition: int = 0) -> tuple[int, int]:
        """Writes a record; returns its partition and offset."""
        written: list[Any] = []
        self._producer.produce(
            topic, value, key, partition, on_delivery=lambda problem, message: written.append(problem or message), headers=list(headers)
        )
        self._producer.flush(30)
        assert written, f"{topic}: not acknowledged"
        assert hasattr(written[0], "offset"), f"{topic}: {written[0]}"
        return int(written[0].partition()), int(written[0].offset())

    def read(self, topic: str) -> list[Record]:
        """All committed records of a topic."""
        consumer = Consumer(
            {
                **self.kafka,
                "group.id": "test",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.max.bytes": 60_000_000,
            }
        )
        numbers = list(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        records: list[Record] = []
        ended = 0
        try:
            while ended < len(numbers):
                message = consumer.poll(10)
                assert message is not None, f"{topic}: nothing within 10 s"
                if (error := message.error()) is not None:
                    # any other error is passed over: if no record follows it, the poll above fails after 10 s
                    ended += error.code() == KafkaError._PARTITION_EOF
                    continue
                pairs: Any = message.headers() or ()
                records.append(
                    Record(
                        topic,
                        int(message.partition() or 0),
                        int(message.offset() or 0),
                        message.timestamp()[1],
                        message.key(),
                        message.value(),
                        tuple(pairs),
                    )
                )
        finally:
            consumer.close()
        return records

    # ---------- a consumer that fails

    def report(self, record: Record, *, group: str = "billing", error: str = "TimeoutError", failed_at: int | None = None) -> None:
        """Reports that a record failed, as a consumer does: its own headers, then ours."""
        domain = record.topic.split(".")[0]
        said: Headers = [
            ("redrive-error-class", error.encode()),
            ("redrive-error-message", b"no answer within 2 s"),
            ("redrive-original-topic", record.topic.encode()),
            ("redrive-original-partition", str(record.partition).encode()),
            ("redrive-original-offset", str(record.offset).encode()),
            ("redrive-original-timestamp", str(record.timestamp).encode()),
            ("redrive-failed-at", str(failed_at or int(time.time() * 1000)).encode()),
            ("redrive-consumer-group", group.encode()),
        ]
        self.write(f"{domain}.reports", record.key, record.value, [*record.headers, *said])

    def fails(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = (), **how: Any) -> Record:
        """Writes a record whose processing fails at once."""
        partition, offset = self.write(topic, key, value, headers)
        record = Record(topic, partition, offset, int(time.time() * 1000), key, value, tuple(headers))
        self.report(record, **how)
        return record


class Redrive(Topics):
    """A loop with its own home, and access to its topics."""

    def __init__(self, kafka: dict[str, str], loop: Loop) -> None:
        super().__init__(kafka)
        self.loop = loop

    @classmethod
    def start(cls, kafka: dict[str, str], home: Path, project: Path) -> Redrive:
        """Starts a loop with the tests' seeds; seeds that are not in SEEDS are the project's."""
        stop_session()
        seeds = write_seeds(home / "seeds", project)
        loop = Loop(
            load_settings(home=home / "state", seeds=seeds, kafka=kafka, project=project, intake_max_rows=5000, look_ahead_seconds=0)
        )
        loop.start()
        return cls(kafka, loop)

    def close(self) -> None:
        """Closes the loop and the producer."""
        self.loop.close()
        super().close()

    # ---------- the loop

    def restart(self, **settings: Any) -> None:
        """Closes the loop and starts another one with the same home, as after an update; settings: changes."""
        self.loop.close()
        self.loop = Loop(self.loop.settings.model_copy(update=settings))
        self.loop.start()

    def until(self, condition: Callable[[], T], what: str, seconds: float = 600) -> T:
        """Runs ticks until a condition holds, and returns its value."""
        deadline = time.monotonic() + seconds
        while True:
            found = condition()
            if found:
                return found
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
            if not self.loop.tick().did_something:
                time.sleep(0.2)

    def retries(self, domain: str, count: int) -> list[Record]:
        """Runs ticks until `count` retries have been sent."""
        topic = f"{domain}.orders-billing-retry"
        return self.until(lambda: (records := self.read(topic)) and len(records) >= count and records, f"{count} retries in {topic}") or []

    def dead(self, domain: str, count: int, topic: str = "orders.dlq") -> list[Record]:
        """Runs ticks until `count` dead letters have been sent."""
        topic = f"{domain}.{topic}"
        return (
            self.until(lambda: (records := self.read(topic)) and len(records) >= count and records, f"{count} dead letters in {topic}")
            or []
        )

    def decided(self, domain: str, count: int) -> list[Any]:
        """Runs ticks until `count` reports of a domain are decided; returns the decisions in the order of the reports."""
        return (
            self.until(
                lambda: (
                    (rows := self.sql(f"select * from decisions where report_topic like '{domain}.%' order by report_topic, report_offset"))
                    and len(rows) >= count
                    and rows
                ),
                f"{count} decisions in {domain}",
            )
            or []
        )

    def settle(self) -> None:
        """Runs ticks until one does nothing."""
        while self.loop.tick().did_something:
            pass

    def sql(self, statement: str) -> list[Any]:
        """Runs a query over the tables."""
        self.loop.spark.sql(f"use {self.loop.schema}")
        return collected(self.loop.spark.sql(statement))
