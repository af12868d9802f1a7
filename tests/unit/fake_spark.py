"""A Spark without Java, for tests of which statements are run, in which order."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from pyspark.sql.types import ArrayType, StringType, StructField, StructType

CREATE = "create or replace temporary view "


@dataclass
class FakeSpark:
    """Answers each query with the row that belongs to its text; fails where an error belongs to it."""

    answers: dict[str, Any]
    conf: Any = field(default_factory=lambda: SimpleNamespace(get=lambda name: "on", set=lambda name, value: None))
    done: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=lambda: ["input_id", "batch"])

    def __post_init__(self) -> None:
        self.catalog = SimpleNamespace(dropTempView=lambda name: self.done.append(f"drop {name}"))

    def table(self, name: str) -> Any:
        return FakeFrame(self, {}, self.columns)

    def sql(self, text: str) -> Any:
        command, _, query = text.partition(" as ") if text.startswith(CREATE) else ("", "", text)
        self.done.append(query)
        answer = self.answers.get(query, {})
        if isinstance(answer, Exception):
            raise answer
        if command:
            self.done.append(command.replace(CREATE, "create "))
        return FakeFrame(self, answer)


@dataclass
class FakeFrame:
    spark: FakeSpark
    row: dict[str, Any]
    columns: list[str] = field(default_factory=list)

    def collect(self) -> list[Any]:
        return [SimpleNamespace(asDict=lambda: self.row)]

    def where(self, condition: str) -> FakeFrame:
        self.spark.done.append(f"where {condition}")
        return self

    def localCheckpoint(self, eager: bool) -> FakeFrame:  # noqa: N802  # Spark's name
        self.spark.done.append("keep")
        return self

    @property
    def write(self) -> Any:
        self.spark.done.append("compute")
        noop = SimpleNamespace(mode=lambda _: SimpleNamespace(save=lambda: None))
        return SimpleNamespace(format=lambda _: noop)

    @property
    def schema(self) -> StructType:
        return StructType(
            [StructField("input_id", StringType()), StructField("headers", ArrayType(StructType([StructField("key", StringType())])))]
        )

    @property
    def _jdf(self) -> Any:
        plan = SimpleNamespace(rdd=lambda: SimpleNamespace(unpersist=lambda blocking: self.spark.done.append("free")))
        return SimpleNamespace(queryExecution=lambda: SimpleNamespace(logical=lambda: plan))

    def createOrReplaceTempView(self, name: str) -> None:  # noqa: N802  # Spark's name
        self.spark.done.append(f"create {name}")
