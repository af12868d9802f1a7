"""The columns that a table must have to be a source: those that Spark gives a record of Kafka, and those of the error."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegralType, MapType, StringType, StructType, TimestampType

OWN_DIALECT = "redrive"

# By column: the header of the dialect `redrive` that says the same (docs/dialects.md).
HEADERS: Final = {
    "topic": "redrive-original-topic",
    "partition": "redrive-original-partition",
    "offset": "redrive-original-offset",
    "timestamp": "redrive-original-timestamp",
    "consumer_group": "redrive-consumer-group",
    "failed_at": "redrive-failed-at",
    "error_class": "redrive-error-class",
    "error_message": "redrive-error-message",
    "error_stack": "redrive-error-stack",
    "error_code": "redrive-error-code",
    "error_kind": "redrive-error-kind",
}

_WHOLE_NUMBERS = ("partition", "offset")
TIMES = ("timestamp", "failed_at")


# The lowest format version that can be read: before, snapshots had no sequence numbers.
_FORMAT_VERSION = 2


class TableError(Exception):
    """The table can't be read, or is not as a source needs it."""


def objections_to_format(spark: SparkSession, table: Any) -> list[str]:
    """What is wrong with the format of a table, in words. table: Iceberg's object of it."""
    version = spark._jvm.org.apache.iceberg.TableUtil.formatVersion(table)  # type: ignore[union-attr]
    if version >= _FORMAT_VERSION:
        return []
    return [
        f"it has format version {version}, and must have {_FORMAT_VERSION}: "
        f"alter table ... set tblproperties ('format-version' = '{_FORMAT_VERSION}')"
    ]


def objections(table: StructType, dialect: str) -> list[str]:
    """What is wrong with the columns of a table, in words."""
    types = {field.name.lower(): field.dataType for field in table.fields}
    found = [] if {"key", "value", "headers"} & types.keys() else ["it has none of the columns key, value and headers"]
    for name in ("key", "value"):
        if not isinstance(types.get(name, BinaryType()), BinaryType | StringType):
            found.append(f"the column {name} must be binary or string, and is {types[name].simpleString()}")
    if "headers" in types and not _are_headers(types["headers"]):
        allowed = "array<struct<key: string, value: binary>> or map<string, binary>"
        found.append(f"the column headers must be {allowed}, and is {types['headers'].simpleString()}")
    if dialect != OWN_DIALECT:
        return found
    if missing := [name for name in ("topic", *_WHOLE_NUMBERS) if name not in types]:
        found.append(f"it has no column {', '.join(missing)}: topic, partition and offset say which message failed")
    for name in HEADERS.keys() & types.keys():
        wanted: type[DataType] = IntegralType if name in _WHOLE_NUMBERS else TimestampType if name in TIMES else StringType
        if not isinstance(types[name], wanted):
            kind = "a whole number" if name in _WHOLE_NUMBERS else wanted.typeName()
            found.append(f"the column {name} must be {kind}, and is {types[name].simpleString()}")
    return found


def _are_headers(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, BinaryType | StringType)
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    types = {field.name: field.dataType for field in kind.elementType.fields}
    return isinstance(types.get("key"), StringType) and isinstance(types.get("value"), BinaryType | StringType)
