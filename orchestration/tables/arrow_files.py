"""Writes rows that the loop has in memory as data files of a table, without a job of Spark's, which would take several times as long.

The files are as Spark's: with the ids of Iceberg's columns, the bounds of each column, and the table's settings for Parquet, and written
through the table's own file system.
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Iterator, Mapping
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

# Iceberg's defaults, in bytes.
_ROW_GROUP: Final = 128 * 1_024 * 1_024
_DICTIONARY: Final = 2 * 1_024 * 1_024


class ArrowFiles:
    """Data files for one table of Iceberg's, whose columns are not nested, and which has no partitions, or one for each hour of a column.

    table: Iceberg's object of it. Raises ValueError for other tables.
    """

    def __init__(self, spark: SparkSession, table: Any) -> None:
        self._jvm: Any = spark._jvm
        self._table = table
        self._spec = table.spec()
        self._properties: Mapping[str, str] = dict(table.properties())
        schema = json.loads(self._jvm.org.apache.iceberg.SchemaParser.toJson(table.schema()))
        self._columns = [_field(column) for column in schema["fields"]]
        spec = json.loads(self._jvm.org.apache.iceberg.PartitionSpecParser.toJson(self._spec))
        self._partition = None if not spec["fields"] else _HourPartition.of(spec["fields"], schema["fields"])

    def written(self, rows: pa.Table) -> list[Any]:
        """Writes rows, in their order; columns that they lack are null. Returns Iceberg's descriptions of the files, for a commit."""
        whole = pa.table(
            [
                rows.column(field.name).cast(field.type) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
                for field in self._columns
            ],
            pa.schema(self._columns),
        )
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


class _HourPartition:
    """A partition for each hour of a column."""

    def __init__(self, name: str, column: str) -> None:
        self._name = name
        self._column = column

    @classmethod
    def of(cls, partition: list[Mapping[str, Any]], columns: list[Mapping[str, Any]]) -> _HourPartition:
        """From the fields of Iceberg's partition spec and schema. Raises ValueError for partitions of another kind."""
        if [field["transform"] for field in partition] != ["hour"]:
            raise ValueError(f"can't be written this way: it is partitioned by {', '.join(field['transform'] for field in partition)}")
        (column,) = (column["name"] for column in columns if column["id"] == partition[0]["source-id"])
        return cls(partition[0]["name"], column)

    def parts(self, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """The rows of each partition, in their order, with Iceberg's text of its values."""
        micros = rows.column(self._column).cast(pa.int64())
        hours = pc.divide(micros, _MICROS_PER_HOUR)
        # towards the past, also before 1970
        hours = pc.subtract(hours, pc.cast(pc.less(micros, pc.multiply(hours, _MICROS_PER_HOUR)), pa.int64()))
        for hour in pc.unique(hours).to_pylist():
            yield f"{self._name}={hour}", rows.filter(pc.equal(hours, hour))


def _repeats(column: pa.ChunkedArray) -> bool:
    """Whether a dictionary makes a column smaller: it makes one of ids larger."""
    some = column.slice(0, 1_000)
    return 2 * int(pc.count_distinct(some).as_py()) <= len(some)


def _field(column: Mapping[str, Any]) -> pa.Field:
    """A column of Iceberg's schema, with the id by which Iceberg finds it in a file. Raises ValueError for other types than these."""
    kind = column["type"] if isinstance(column["type"], str) else column["type"]["type"]
    if kind not in _TYPES:
        raise ValueError(f"can't be written this way: the column {column['name']} is a {kind}")
    return pa.field(column["name"], _TYPES[kind], not column["required"], {"PARQUET:field_id": str(column["id"])})
