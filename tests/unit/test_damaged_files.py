"""Which errors of the JVM say that a file of a table is missing or damaged: where it was read, not where it could not be written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from orchestration.tables.spark import is_damaged

READER = "org.apache.parquet.hadoop.ParquetFileReader"


def thrown(name: str, *frames: str, cause: Any = None) -> PySparkException:
    """An error of Spark's with an exception of the JVM, with what is read of it."""
    stack = [SimpleNamespace(getClassName=lambda frame=frame: frame) for frame in frames]
    error = PySparkException("text")
    error._origin = SimpleNamespace(  # type: ignore[attr-defined]
        getClass=lambda: SimpleNamespace(getName=lambda: name),
        getStackTrace=lambda: stack,
        getCause=lambda: cause and cause._origin,
        getCondition=lambda: None,
    )
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (thrown("org.apache.hadoop.fs.ChecksumException"), True),
        (thrown("org.apache.spark.SparkException", cause=thrown("org.apache.hadoop.fs.ChecksumException")), True),
        (thrown("org.apache.iceberg.exceptions.NotFoundException"), True),
        (thrown("java.io.FileNotFoundException", "org.apache.hadoop.fs.RawLocalFileSystem"), True),
        (thrown("java.lang.RuntimeException", READER), True),
        (thrown("java.lang.RuntimeException", f"org.apache.iceberg.shaded.{READER}$Internal"), True),
        (thrown("org.apache.iceberg.shaded.com.fasterxml.jackson.core.JsonParseException"), True),
        # a file that may not be written, and a disk that is full, in each kind of file
        (thrown("java.io.FileNotFoundException", "java.io.FileOutputStream", "org.apache.hadoop.fs.RawLocalFileSystem"), False),
        (thrown("java.io.IOException", "java.io.FileOutputStream", "org.apache.parquet.hadoop.ParquetFileWriter"), False),
        (thrown("java.io.IOException", "org.apache.avro.file.DataFileWriter"), False),
        (thrown("org.apache.iceberg.exceptions.RuntimeIOException", "org.apache.iceberg.TableMetadataParser"), False),
        (thrown("java.lang.OutOfMemoryError"), False),
    ],
    ids=lambda value: "" if isinstance(value, bool) else None,
)
def test_an_error_of_reading_is_one_of_damage(error: PySparkException, expected: bool) -> None:
    assert is_damaged(error) == expected
