"""Writes rows that the loop has in memory as data files of a table, without a job of Spark's, which would take several times as long.

The files are as Spark's: with the ids of Iceberg's columns, the bounds of each column, and the table's settings for Parquet, and written
through the table's own file system.
"""

from __future__ import annotations

import json
import re
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

# Iceberg's types that a column may have, as Arrow's.
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamptz": pa.timestamp("us", tz="UTC"),
}

_MICROS_PER_HOUR: Final = 3_600_000_000

_TRANSFORM: Final = re.compile(r"hour|truncate\[(?P<width>\d+)\]")

# Iceberg's defaults, in bytes.
_ROW_GROUP: Final = 128 * 1_024 * 1_024
_DICTIONARY: Final = 2 * 1_024 * 1_024


class ArrowFiles:
    """Data files for one table of Iceberg's. table: Iceberg's object of it.

    Raises ValueError for a table with columns of other types than our ledgers have, or partitioned otherwise.
    """

    def __init__(self, spark: SparkSession, table: Any) -> None:
        jvm: Any = spark._jvm
        iceberg = jvm.org.apache.iceberg
        self._jvm = jvm
        self._table = table
        self._spec = table.spec()
        self._properties: Mapping[str, str] = dict(table.properties())
        schema = json.loads(iceberg.SchemaParser.toJson(table.schema()))
        self._schema = pa.schema([_field(column) for column in schema["fields"]])
        spec = json.loads(iceberg.PartitionSpecParser.toJson(self._spec))
        self._partition = None if not spec["fields"] else _Partition.of(spec["fields"], schema["fields"])

    def written(self, rows: pa.Table) -> list[Any]:
        """Writes rows, in their order; columns that they lack are null. Returns Iceberg's descriptions of the files, for a commit."""
        whole = pa.table([_column(rows, field) for field in self._schema], self._schema)
        parts = [(None, whole)] if self._partition is None else self._partition.parts(whole)
        return [self._written(part, partition) for partition, part in parts]

    def _written(self, rows: pa.Table, partition: str | None) -> Any:
        iceberg, io = self._jvm.org.apache.iceberg, self._table.io()
        builder, provider, name = iceberg.DataFiles.builder(self._spec), self._table.locationProvider(), f"{uuid.uuid4()}.parquet"
        if partition is None:
            place = provider.newDataLocation(name)
        else:
            values = iceberg.DataFiles.data(self._spec, partition)
            builder, place = builder.withPartition(values), provider.newDataLocation(self._spec, values, name)
        with tempfile.TemporaryDirectory() as directory:
            local = Path(directory) / name
            self._write(rows, local)
            target = io.newOutputFile(place).create()
            try:
                self._jvm.java.nio.file.Files.copy(self._jvm.java.io.File(str(local)).toPath(), target)
            finally:
                target.close()
        file = io.newInputFile(place)
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(file, iceberg.MetricsConfig.forTable(self._table))
        return builder.withInputFile(file).withMetrics(metrics).build()

    def _write(self, rows: pa.Table, path: Path) -> None:
        row_group = int(self._properties.get("write.parquet.row-group-size-bytes", _ROW_GROUP))
        pq.write_table(
            rows,
            path,
            row_group_size=max(1, row_group * rows.num_rows // max(1, rows.nbytes)),
            compression=self._properties.get("write.parquet.compression-codec", "zstd"),
            use_dictionary=[name for name in rows.column_names if _repeats(rows.column(name))],
            dictionary_pagesize_limit=int(self._properties.get("write.parquet.dict-size-bytes", _DICTIONARY)),
            store_schema=False,
        )


@dataclass(frozen=True)
class _Partition:
    """Partitions by whole numbers: of a time the hours since 1970, or a number rounded down to a multiple of another one."""

    name: str
    column: str
    width: int
    is_hour: bool

    @classmethod
    def of(cls, fields: list[Mapping[str, Any]], columns: list[Mapping[str, Any]]) -> _Partition:
        """From the fields of Iceberg's partition spec and schema. Raises ValueError for partitions of another kind."""
        transforms = [field["transform"] for field in fields]
        found = _TRANSFORM.fullmatch(transforms[0])
        (column,) = (column for column in columns if column["id"] == fields[0]["source-id"])
        if len(fields) > 1 or found is None or column["type"] not in ("timestamptz", "long"):
            raise ValueError(f"can't be written this way: it is partitioned by {', '.join(transforms)}")
        return cls(fields[0]["name"], column["name"], int(found["width"] or _MICROS_PER_HOUR), found["width"] is None)

    def parts(self, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """The rows of each partition, in their order, with Iceberg's text of its value."""
        numbers = rows.column(self.column).cast(pa.int64())
        values = pc.divide(numbers, self.width)
        # down, also below 0
        values = pc.subtract(values, pc.cast(pc.less(numbers, pc.multiply(values, self.width)), pa.int64()))
        for value in pc.unique(values).to_pylist():
            yield f"{self.name}={value if self.is_hour else value * self.width}", rows.filter(pc.equal(values, value))


def _column(rows: pa.Table, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    """A column of the rows as the table has it; nulls, if they lack it."""
    if field.name not in rows.column_names:
        return pa.nulls(rows.num_rows, field.type)
    column = rows.column(field.name)
    # a nested column has fields inside, each with an id, which a cast would not add
    return pa.array(column.to_pylist(), field.type) if pa.types.is_nested(field.type) else column.cast(field.type)


def _repeats(column: pa.ChunkedArray) -> bool:
    """Whether a dictionary makes a column smaller. It makes one of ids larger; nested ones, which can't be counted, have a few rows."""
    if pa.types.is_nested(column.type):
        return False
    some = column.slice(0, 1_000)
    return 2 * int(pc.count_distinct(some).as_py()) <= len(some)


def _field(column: Mapping[str, Any]) -> pa.Field:
    """A column of Iceberg's schema, with the id by which Iceberg finds it in a file. Raises ValueError for other types than these."""
    return _with_id(column["name"], column["type"], column["id"], is_required=column["required"])


def _with_id(name: str, kind: Any, number: int, *, is_required: bool) -> pa.Field:
    return pa.field(name, _type(kind), not is_required, {"PARQUET:field_id": str(number)})


def _type(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        if kind not in _TYPES:
            raise ValueError(f"can't be written this way: it has a column of type {kind}")
        return _TYPES[kind]
    if kind["type"] == "struct":
        return pa.struct([_field(field) for field in kind["fields"]])
    if kind["type"] == "list":
        return pa.list_(_with_id("element", kind["element"], kind["element-id"], is_required=kind["element-required"]))
    return pa.map_(
        _with_id("key", kind["key"], kind["key-id"], is_required=True),
        _with_id("value", kind["value"], kind["value-id"], is_required=kind["value-required"]),
    )
