"""A home with real tables for tests of the SQL: report, decide, read the decisions.

One Spark session and one dbt serve all tests of a session. Each test has its own topics, and all share a clock that only goes forward.
"""

from __future__ import annotations

import csv
import dataclasses
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql.types import StructType

from orchestration.settings import load_settings
from orchestration.tables.analysed_views import AnalysedViews
from orchestration.tables.dbt import Dbt
from orchestration.tables.decide_statements import DecideRunner
from orchestration.tables.ledgers import LEDGERS, Ledgers
from orchestration.tables.rows import collected
from orchestration.tables.spark import schema, start_session
from orchestration.tables.views import make_tables
from tests.dbt.arrow_rows import arrow_rows
from tests.dbt.loaded_seeds import LoadedSeeds
from tests.sessions import stop_session

PROJECT = Path(__file__).parents[2]

TOPICS = {
    "decisions_topic": "announced",
    "gates_topic": "guarded-gates",
    "protected_topics": "other-commands staging-* by.group.forbidden",
}
"""The settings of a home that name internal topics, to which no message is sent."""

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Report:
    """A record of a report topic, byte for byte, with its source; or another event."""

    headers: Headers | None
    key: bytes | None = b"key"
    value: bytes | None = b"value"
    source: str | None = "failures"
    kind: str = "report"
    about: Row | None = None
    """The delivery that an order is about."""
    detail: str | None = None
    command: str | None = None
    at: datetime | None = None
    """The time of the record; None: when it is taken in."""

    def but(self, **changes: Any) -> Report:
        """A copy with other values."""
        return dataclasses.replace(self, **changes)

    def with_headers(self, *headers: tuple[str, bytes | None]) -> Report:
        """A copy with these headers in front, as in a message that was sent before."""
        return dataclasses.replace(self, headers=(*headers, *(self.headers or ())))


@dataclass(frozen=True)
class Result:
    """The result of a send."""

    delivery: Row
    outcome: str = "delivered"
    offset: int | None = None
    error_name: str | None = None
    error_kind: str | None = None


def report(
    topic: str,
    offset: object = 0,
    *,
    partition: object = 0,
    group: str | None = "billing",
    error: str | None = "TimeoutError",
    failed_at: datetime | None = None,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
) -> Report:
    """A failure report in redrive's own dialect."""
    said: dict[str, object] = {
        "redrive-error-class": error,
        "redrive-error-message": "boo",
        "redrive-original-topic": topic,
        "redrive-original-partition": partition,
        "redrive-original-offset": offset,
        "redrive-consumer-group": group,
        "redrive-failed-at": None if failed_at is None else round(failed_at.timestamp() * 1000),
    }
    headers = tuple((name, str(value).encode()) for name, value in said.items() if value is not None)
    return Report((("trace", b"\x00\xff"), *headers), key, value)


def spring_report(
    *hops: tuple[str, int, int],
    group: str = "billing",
    error: str = "java.net.ConnectException",
    key: bytes | None = b"key",
    value: bytes | None = b"value",
) -> Report:
    """A failure report as Spring Kafka writes it: coordinates of every hop, oldest first, numbers big-endian."""
    headers: list[tuple[str, bytes | None]] = [("trace", b"\x00\xff")]
    for topic, partition, offset in hops:
        headers += [
            ("kafka_dlt-original-topic", topic.encode()),
            ("kafka_dlt-original-partition", partition.to_bytes(4, "big")),
            ("kafka_dlt-original-offset", offset.to_bytes(8, "big", signed=True)),
        ]
    headers += [
        ("kafka_dlt-original-consumer-group", group.encode()),
        ("kafka_dlt-exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
        ("kafka_dlt-exception-cause-fqcn", error.encode()),
        ("kafka_dlt-exception-message", b"not utf-8: \xff"),
    ]
    return Report(tuple(headers), key, value, source="spring")


def failed_again(delivery: Row, offset: int, *, error: str | None = "TimeoutError") -> Report:
    """The report of a consumer that failed on a retry, by a framework that drops headers that it doesn't know."""
    return report(
        delivery["topic"],
        offset,
        error=error,
        group=delivery["consumer_group"],
        key=delivery["key"],
        value=delivery["value"],
    )


def order(kind: str, delivery: Row, detail: str | None = None) -> Report:
    """An order about a delivery, of the loop or of an operator."""
    return Report(None, None, None, source=None, kind=kind, about=delivery, detail=detail)


def pointer(delivery: Row) -> Headers:
    """The headers of a retry that name its delivery."""
    return (
        ("redrive-delivery", delivery["delivery_id"].encode()),
        ("redrive-due", str(round(delivery["due_at"].timestamp() * 1000)).encode()),
    )


def copy_of_the_project(directory: Path) -> Path:
    """A copy of the project's SQL and seeds, for a test that changes it."""
    project = directory / "project"
    for name in ("models", "macros", "dbt_project"):
        shutil.copytree(PROJECT / name, project / name)
    for name in ("dbt_project.yml", "profiles.yml"):
        shutil.copy(PROJECT / name, project / name)
    return project


@dataclass
class Home:
    """Tables in a new directory, with dbt and the ledgers to fill them."""

    path: Path
    seeds: Mapping[str, Sequence[Mapping[str, object]]] = field(default_factory=dict)
    """Rows by seed, which replace those of the project."""
    now: datetime = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def __post_init__(self) -> None:
        seeds = self.path / "seeds"
        shutil.copytree(PROJECT / "dbt_project" / "seeds", seeds)
        for name, rows in self.seeds.items():
            with (seeds / f"{name}.csv").open("w", newline="") as file:
                writer = csv.DictWriter(file, fieldnames=list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
        self._settings = load_settings(home=self.path, seeds=seeds, project=PROJECT, **TOPICS)
        stop_session()
        self.spark = start_session(self._settings)
        self.schema = schema(PROJECT)
        self._dbt = Dbt(self._settings)
        make_tables(self.spark, self._dbt, self.schema)
        self._seeds = LoadedSeeds.all(seeds, self._dbt)
        self._runner = DecideRunner(self.spark, self.schema, self._dbt)
        self._views = AnalysedViews(self.spark.newSession(), self.schema)
        self._ledgers = Ledgers(self.spark, self.schema, generation=1)
        self._ledgers.read_end()
        self._records = 0

    def later(self, **time: float) -> None:
        """Lets time pass."""
        self.now += timedelta(**time)

    def append_reports(self, *reports: Report) -> list[str]:
        """Appends reports to `events`, in one batch. Returns their input ids."""
        rows: list[tuple[Any, ...]] = [
            (
                *(
                    "topic-id" if taken.about is None else "loop",
                    0,
                    self._records + place,
                    0,
                    taken.kind,
                    taken.source,
                    None if taken.about is not None else f"{taken.source}-topic",
                ),
                *(taken.key, taken.value),
                None if taken.headers is None else [Row(key=name, value=value) for name, value in taken.headers],
                *(taken.at or self.now, False),
                *(None if taken.about is None else taken.about[name] for name in ("delivery_id", "due_at")),
                *(taken.detail, taken.command),
            )
            for place, taken in enumerate(reports)
        ]
        self._records += len(rows)
        columns = (
            "topic_id string, partition int, offset bigint, index int, kind string, source string, topic string, key binary,"
            "value binary, headers array<struct<key: string, value: binary>>, record_timestamp timestamp, stamped_by_broker boolean,"
            "delivery_id string, due_at timestamp, detail string, command string"
        )
        self.append("events", arrow_rows(rows, columns))
        return [f"{row[0]}/0/{row[2]}/0" for row in rows]

    def append_results(self, *results: Result) -> list[str]:
        """Appends results to `publish_results`, in one batch. Returns their input ids."""
        rows = [
            (
                *(result.delivery[name] for name in ("delivery_id", "due_at", "kind", "message_id", "topic")),
                *(result.outcome, None if result.offset is None else 0, result.offset, result.error_name, result.error_kind),
                *(result.delivery[name] for name in ("original_topic", "original_partition", "original_offset")),
            )
            for result in results
        ]
        columns = (
            "delivery_id string, due_at timestamp, kind string, message_id string, topic string, outcome string, partition int,"
            "offset bigint, error_name string, error_kind string, original_topic string, original_partition int,"
            "original_offset bigint"
        )
        batch = self.append("publish_results", arrow_rows(rows, columns))
        return [f"{row[0]}@{batch}" for row in rows]

    def append_tick(self, upto: int, *settled: tuple[Any, ...], written: Mapping[str, int] | None = None, kind: str = "tick") -> None:
        """Appends the row of a loop that has decided everything up to this batch, and sent all that is due.

        settled: groups that got further: group, topic, partition, and the offset before which all was tried.
        written: by outbox, the last batch that is written back.
        """
        row = {"tick": 1, "kind": kind, "watermark": upto, "floor": self.now, "loop_time": self.now, "circuit_breakers": {}}
        row |= {"settled": [*settled], "outboxes": {name: (batch, batch, False) for name, batch in (written or {}).items()}}
        types = self.spark.table(f"{self.schema}.ticks").schema
        self.append("ticks", self.spark.createDataFrame([tuple(row.values())], StructType([types[name] for name in row])))

    @property
    def batch(self) -> int:
        """The last batch that was appended."""
        return self._ledgers.batch

    def decide(self, *, project: Path = PROJECT, upto: int | None = None, **variables: object) -> None:
        """Decides all undecided inputs as the loop does, in as many decide runs as it takes. Raises DecideError.

        upto: the last batch to decide; None: all. project (a copy with other SQL), variables: by a `dbt run`, which raises DbtError.
        """
        end, watermark = self.batch if upto is None else upto, self._watermark()
        dbt = self._dbt if project == PROJECT else Dbt(self._settings.model_copy(update={"project": project}))
        while True:
            if project == PROJECT and not variables:
                self._runner.run(watermark, end, None)
            else:
                told = {} if upto is None else {"watermark": watermark, "upto": upto}
                dbt.run("run", select=["deliveries"], variables={**told, **variables})
            watermark = self._watermark()
            if watermark >= end or not self._has_undecided(watermark, end):
                break

    def decide_by_hand(self, upto: int) -> None:
        """A `dbt run` of the model, as a person runs it, but for the last batch."""
        self._dbt.run("run", select=["deliveries"], variables={"watermark": self._watermark(), "upto": upto})

    def empty(self, after: int = 0) -> None:
        """Deletes what was taken in and decided in batches after this one. The numbers of batches go on."""
        for table in LEDGERS:
            self.spark.sql(f"delete from {self.schema}.{table} where batch > {after:d}")
        self.forget(after)
        self._ledgers.read_end()

    def forget(self, after: int) -> None:
        """Deletes the decisions of later batches, which can then be decided again."""
        self.spark.sql(f"delete from {self.schema}.deliveries where batch > {after:d}")

    def _watermark(self) -> int:
        ends = [f"select max(batch) as batch from {self.schema}.deliveries", f"select max(watermark) as batch from {self.schema}.ticks"]
        return int(self.spark.sql(f"select coalesce(max(batch), 0) as batch from ({' union all '.join(ends)})").collect()[0]["batch"])

    def _has_undecided(self, watermark: int, upto: int) -> bool:
        among = f"batch > {watermark:d} and batch <= {upto:d}"
        inputs = [f"select 1 from {self.schema}.events where {among}"]
        inputs += [f"select 1 from {self.schema}.publish_results where {among} and outcome = 'failed'"]
        return bool(self.spark.sql(f"select * from ({' union all '.join(inputs)}) limit 1").collect())

    def run(self, command: str, *select: str, project: Path = PROJECT) -> None:
        """Runs a dbt command over the whole project, or another copy, as a bare `dbt run` does, or over what is selected."""
        if command == "seed":
            self._seeds.loaded = {}
        dbt = self._dbt if project == PROJECT else Dbt(self._settings.model_copy(update={"project": project}))
        dbt.run(command, select=select)

    def compiled(self, inline: str) -> str:
        """The SQL of a piece of Jinja, to test macros without a model."""
        return self._dbt.compiled(inline)

    def load_rules(self) -> None:
        """Loads the seeds that have changed and makes the table `rules`, as the loop does with all seeds."""
        self._seeds.load()

    def read(self, table: str) -> list[Row]:
        """All rows of a table or view; times are aware, in UTC."""
        return self.ask(f"select * from {table}")

    def ask(self, statement: str) -> list[Row]:
        """The rows of a select, which names tables and views without the schema."""
        return self._views.ask(statement, collected)

    def decisions(self) -> dict[str, Row]:
        """All decisions by their input_id."""
        return {row["input_id"]: row for row in self.read("decisions")}

    def append(self, ledger: str, rows: DataFrame | pa.Table) -> int:
        """Appends rows to a ledger; returns their batch."""
        return self._ledgers.append(ledger, rows, self.now)


def decided(home: Home, *inputs: Report | Result) -> list[Row]:
    """What is decided a second later about reports and results of sends, as it lies in the wheel. Results have a batch of their own."""
    home.later(seconds=1)
    reports, results = [one for one in inputs if isinstance(one, Report)], [one for one in inputs if isinstance(one, Result)]
    of_reports = iter(home.append_reports(*reports) if reports else ())
    of_results = iter(home.append_results(*results) if results else ())
    input_ids = [next(of_reports if isinstance(one, Report) else of_results) for one in inputs]
    home.decide()
    kept = {row["input_id"]: row for row in home.read("deliveries")}
    return [kept[input_id] for input_id in input_ids]


def pairs(headers: Iterable[Row] | None) -> list[tuple[str, bytes | None]]:
    return [(header["key"], None if header["value"] is None else bytes(header["value"])) for header in headers or ()]
