"""The Spark session. Its configuration is read from profiles.yml, as dbt's is."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from orchestration.output import redacted
from orchestration.settings import Settings
from orchestration.tables.jvm import output_to, start_jvm

FROM_KAFKA = "org.apache.spark.sql.kafka010."
"""The package of Spark's source for Kafka: an error raised there was raised while records were read."""

# The errors with which Iceberg says that it has not committed, and will not.
_COMMIT_REFUSALS = frozenset({"org.apache.iceberg.exceptions.ValidationException", "org.apache.iceberg.exceptions.CommitFailedException"})

# The errors of a file that is missing, or whose content can't be right; and the classes in which files are read, not written.
_UNREADABLE = frozenset(
    {
        "java.io.FileNotFoundException",
        "org.apache.hadoop.fs.ChecksumException",
        "org.apache.iceberg.exceptions.NotFoundException",
    }
)
_READERS = tuple(
    f"{shaded}{name}"
    for shaded in ("", "org.apache.iceberg.shaded.")
    for name in (
        "com.fasterxml.jackson.core.JsonParseException",
        "com.fasterxml.jackson.core.io.JsonEOFException",
        "org.apache.avro.InvalidAvroMagicException",
        "org.apache.avro.file.DataFileReader",
        "org.apache.avro.file.DataFileStream",
        "org.apache.parquet.hadoop.ParquetFileReader",
        "org.apache.parquet.io.ParquetDecodingException",
    )
)
# Java also raises a FileNotFoundException where a file may not be written.
_WRITERS = "java.io.FileOutputStream"

# The most causes that are followed: in Java, a chain of causes may be a circle.
_MOST_CAUSES = 20

# Lines of Spark's messages that say nothing to a user.
_STACK = re.compile(r"at \S+\(|\.\.\. \d+ (more|elided)|Suppressed: |JVM stacktrace:|An error occurred while calling ")

# The fewest partitions that shuffles of a query begin with; Spark coalesces them if there is little data.
_ASKED_PARTITIONS = 8


def runs_spark() -> bool:
    """Whether Spark runs in this process already."""
    return SparkContext._gateway is not None


def start_session(settings: Settings) -> SparkSession:
    """The session of this process, started if there is none. dbt's session method then picks it up.

    Spark's output goes to `spark.log` in the home's logs: each start prints sixty lines, among which redrive's would be lost.
    """
    settings.make_home()
    return _session(settings, settings.home / "logs" / "spark.log")


def _session(settings: Settings, log: Path, *, brief: bool = False) -> SparkSession:
    os.environ.update(settings.dbt_environment)
    # the publisher runs in Spark's Python workers, which need this interpreter's packages, not those of any `python3`
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    configuration = session_configuration(settings.project)
    for name, value in configuration.items():
        builder = builder.config(name, value)
    # at level DEBUG, this logger would write the arguments of all calls, Kafka's passwords among them
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # this logger would repeat each exception, with the JVM's stack as JSON
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    if runs_spark():
        return builder.getOrCreate()
    interrupted = signal.getsignal(signal.SIGINT)
    with output_to(log) as output:
        start_jvm(configuration, output, brief=brief)
        if builder._options["spark.master"] == "local[*]":
            # one thread more than there are processors, so that a long task of a question keeps no step waiting
            builder = builder.config("spark.master", f"local[{_processors() + 1}]")
        session = builder.getOrCreate()
    if threading.current_thread() is threading.main_thread():
        # Spark installs a handler of its own, which would raise in the middle of a step
        signal.signal(signal.SIGINT, interrupted)
    return session


def _processors() -> int:
    """How many processors this process may use, which in a container may be fewer than the machine has."""
    assert SparkContext._jvm is not None
    return int(SparkContext._jvm.java.lang.Runtime.getRuntime().availableProcessors())


def full_name(spark: SparkSession, table: str) -> str:
    """A table's name with its catalog: the default one, unless its first part is one that Spark knows."""
    known = spark.conf.get(f"spark.sql.catalog.{table.partition('.')[0]}", "") if table.count(".") > 1 else ""
    return table if known else f"{spark.conf.get('spark.sql.defaultCatalog', 'spark_catalog')}.{table}"


def iceberg_table(spark: SparkSession, name: str) -> Any:
    """Iceberg's object of a table, which answers in milliseconds; SQL on its metadata tables needs a job."""
    iceberg = spark._jvm.org.apache.iceberg.spark.Spark3Util  # type: ignore[union-attr]
    # with the catalog's name: a JVM thread that has run no statement has no default catalog
    return iceberg.loadIcebergTable(spark._jsparkSession, full_name(spark, name))


def table_property(spark: SparkSession, name: str, key: str) -> str | None:
    """A property of an Iceberg table; None if the table doesn't have it."""
    value = iceberg_table(spark, name).properties().get(key)
    return None if value is None else str(value)


def set_table_property(spark: SparkSession, name: str, key: str, value: object) -> None:
    """Sets a property of an Iceberg table: a commit that changes no row. value: printed without quotes or backslashes."""
    spark.sql(f"alter table {name} set tblproperties ('{key}' = '{value}')")


def nodes(tree: Any) -> Iterator[Any]:
    """A node of what Spark has parsed, an expression or a statement, and all those below it."""
    yield tree
    children = tree.children()
    for place in range(children.size()):
        yield from nodes(children.apply(place))


def view_text(spark: SparkSession, name: str) -> str:
    """The statement of a view, as its catalog has it: with the comments. name: that of the default catalog, with its schema."""
    return str(default_catalog(spark).loadView(java_identifier(spark, name)).query())


def default_catalog(spark: SparkSession) -> Any:
    """Spark's object of the default catalog."""
    return spark._jsparkSession.sessionState().catalogManager().catalog(spark.conf.get("spark.sql.defaultCatalog", "spark_catalog"))


def java_identifier(spark: SparkSession, name: str) -> Any:
    """Java's object of the name of a table or view, with its schema."""
    *namespace, last = name.split(".")
    java = spark._jvm
    assert java is not None
    return java.org.apache.spark.sql.connector.catalog.Identifier.of(java_strings(spark, namespace), last)


def java_strings(spark: SparkSession, values: Sequence[str]) -> Any:
    """Texts as an array of Java's."""
    gateway = spark._sc._gateway
    assert gateway is not None
    array = gateway.new_array(gateway.jvm.java.lang.String, len(values))
    for place, value in enumerate(values):
        array[place] = value
    return array


def session_to_ask(settings: Settings, *, brief: bool = True) -> SparkSession:
    """A session beside the loop's, for queries of people, which may read any amount of data.

    brief: if Spark has to be started, it is for a question or two; see start_jvm.

    It uses adaptive execution, which skips joins of empty inputs and sorts of small ones, and would slow the decide step down. It writes
    nothing to the home, where this user may have no permission.
    """
    running = SparkSession._instantiatedSession
    if running is not None and _reads_tables_of(running, settings):
        # not through `getOrCreate`: it would set the profile's values in the loop's session, in the middle of a step
        return _asking(running)
    return _asking(_session(to_ask(settings), scratch() / "spark.log", brief=brief))


def _reads_tables_of(session: SparkSession, settings: Settings) -> bool:
    """Whether a session that runs in this process has the catalogs of these settings."""
    if session._sc._jsc is None:
        return False
    wanted = session_configuration(settings.project, {**os.environ, **settings.dbt_environment})
    return all(session.conf.get(name, "") == value for name, value in wanted.items() if name.startswith("spark.sql.catalog."))


def to_ask(settings: Settings) -> Settings:
    """The settings for queries. If there is no catalog, home is a scratch directory: opening a SQLite catalog would create its file."""
    file = catalog_file(settings)
    return settings if file is None or file.is_file() else settings.model_copy(update={"home": scratch()})


@lru_cache(maxsize=1)
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="redrive-")


def scratch() -> Path:
    """A directory that is removed when this process ends, for what queries write."""
    return Path(_scratch().name)


def catalog_file(settings: Settings) -> Path | None:
    """The file of the catalog in profiles.yml, whether it exists or not; None if it is not a SQLite catalog."""
    configuration = session_configuration(settings.project, {**os.environ, **settings.dbt_environment})
    name = configuration.get("spark.sql.defaultCatalog", "")
    found = re.fullmatch(r"jdbc:sqlite:([^?]+)(?:\?.*)?", configuration.get(f"spark.sql.catalog.{name}.uri", ""))
    return Path(found[1]).absolute() if found else None


@lru_cache(maxsize=1)
def _asking(session: SparkSession) -> SparkSession:
    return another_to_ask(session)


def another_to_ask(session: SparkSession) -> SparkSession:
    """A new session for queries of people, with temporary views of its own."""
    asking = session.newSession()
    partitions = max(int(asking.conf.get("spark.sql.shuffle.partitions") or 1), _ASKED_PARTITIONS)
    asking.conf.set("spark.sql.adaptive.enabled", "true")
    asking.conf.set("spark.sql.adaptive.coalescePartitions.initialPartitionNum", str(partitions))
    return asking


def in_short(error: BaseException | str) -> str:
    """An error of Spark's in one line: up to three lines of it, and its root cause (the last "Caused by"), without the JVM's stack."""
    lines = [line.strip() for line in str(error).splitlines()]
    messages = [line for line in lines if line and not _STACK.match(line)]
    causes = [line for line in messages if line.startswith("Caused by: ")]
    first = [line.removeprefix(": ") for line in messages if line not in causes][:3]
    return redacted("; ".join([*first, *causes[-1:]]) or repr(error))


def is_gone(error: Exception) -> bool:
    """Whether the Spark process itself is gone: this process can't bring it back."""
    return isinstance(error, Py4JNetworkError | ConnectionError)


@dataclass(frozen=True)
class JavaError:
    """An exception of the JVM.

    name: its class. frames: the classes of its stack frames, the innermost first. condition: Spark's name of the error, such as
    `CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND`; None if it is not one of Spark's.
    """

    name: str
    frames: tuple[str, ...]
    condition: str | None = None

    def is_raised_in(self, *prefixes: str) -> bool:
        """Whether its class, or that of one of its frames, begins with one of these prefixes."""
        return any(name.startswith(prefixes) for name in (self.name, *self.frames))


def java_exception(error: BaseException) -> Any:
    """The JVM's exception behind an error of Py4J's, or of PySpark's, which converts some classes; None if there is none."""
    return getattr(error, "java_exception", None) or getattr(error, "_origin", None)


def java_errors(error: BaseException) -> list[JavaError]:
    """The exceptions of the JVM behind an error of Spark's, each followed by its cause; none if the JVM did not answer."""
    found: list[JavaError] = []
    with suppress(Exception):
        thrown = java_exception(error)
        while thrown is not None and len(found) < _MOST_CAUSES:
            frames = tuple(str(frame.getClassName()) for frame in thrown.getStackTrace())
            found.append(JavaError(str(thrown.getClass().getName()), frames, _condition(thrown)))
            thrown = thrown.getCause()
    return found


def is_commit_refused(error: BaseException) -> bool:
    """Whether Iceberg refused a commit, as another one came first: nothing was committed, and the step may be tried again."""
    return any(one.name in _COMMIT_REFUSALS for one in java_errors(error))


def is_damaged(error: BaseException) -> bool:
    """Whether a file of a table is missing, or its content can't be read."""
    return any((one.name in _UNREADABLE or one.is_raised_in(*_READERS)) and not one.is_raised_in(_WRITERS) for one in java_errors(error))


def _condition(thrown: Any) -> str | None:
    """Spark's name of an error; None for an exception that has no such method."""
    with suppress(Exception):
        name = thrown.getCondition()
        return None if name is None else str(name)
    return None


def session_configuration(project: Path, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The server_side_parameters of profiles.yml's target, with its env_var calls filled in."""
    return {str(name): str(value) for name, value in _target(project, environment)["server_side_parameters"].items()}


def schema(project: Path) -> str:
    """The schema of the tables."""
    return str(_target(project, os.environ)["schema"])


def _target(project: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    def env_var(name: str, default: str | None = None) -> str:
        value = environment.get(name, default)
        if value is None:
            raise KeyError(f"profiles.yml needs the environment variable {name}, which is not set")
        return value

    def rendered(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: rendered(inner) for name, inner in value.items()}
        if isinstance(value, str):
            return Environment(undefined=StrictUndefined, autoescape=False).from_string(value).render(env_var=env_var)
        return value

    profile = rendered(yaml.safe_load((project / "profiles.yml").read_text(encoding="utf-8"))["redrive"])
    target: dict[str, Any] = profile["outputs"][profile["target"]]
    return target
