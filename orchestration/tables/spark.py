"""The Spark session, with the configuration that dbt uses: profiles.yml is read by both, so there is one of it."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import yaml
from jinja2 import Environment, StrictUndefined
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from orchestration.cli.output import redacted
from orchestration.settings import Settings

FROM_KAFKA = "org.apache.spark.sql.kafka010."
"""Where Spark's source for Kafka lies: what is raised there was raised while records were read."""

# Java lets an error be its own cause, by detours.
_MOST_CAUSES = 20

# Lines of what Spark says that tell people nothing.
_STACK = re.compile(r"at \S+\(|\.\.\. \d+ (more|elided)|Suppressed: |JVM stacktrace:|An error occurred while calling ")

# Partitions that a question's shuffles begin with, at least; of little data Spark makes one.
_ASKED_PARTITIONS = 8

# Larger than this, the file with what Spark said begins anew.
_LOG_BYTES = 1_000_000


def start_session(settings: Settings) -> SparkSession:
    """The session of this process, started if there is none. dbt's session method then picks it up.

    What Spark prints goes to `spark.log` in the home's logs: sixty lines at each start, among which nobody would find ours.
    """
    settings.make_home()
    return _session(settings, settings.home / "logs" / "spark.log")


def _session(settings: Settings, log: Path) -> SparkSession:
    os.environ.update(settings.dbt_environment)
    # the publisher runs in Spark's Python workers: they need what is installed here, not what `python3` happens to be
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    for name, value in session_configuration(settings.project).items():
        builder = builder.config(name, value)
    # says again, with the JVM's stack in JSON, what the exception says
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    if SparkContext._gateway is not None:
        return builder.getOrCreate()
    interrupted = signal.getsignal(signal.SIGINT)
    with _said_in(log) as said:
        _start_jvm(settings, said)
        session = builder.getOrCreate()
    if threading.current_thread() is threading.main_thread():
        # Spark puts a handler of its own there, which raises in the middle of a step
        signal.signal(signal.SIGINT, interrupted)
    return session


def _start_jvm(settings: Settings, log: IO[bytes]) -> None:
    """Starts Spark's process, in a session of its own: a signal to this process's group would end it in the middle of a step.

    It ends with this process, as its standard input does.
    """
    conf = SparkConf(loadDefaults=False)
    for name, value in session_configuration(settings.project).items():
        conf.set(name, value)
    gateway = launch_gateway(conf, {"start_new_session": True, "stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)


def session_to_ask(settings: Settings) -> SparkSession:
    """A session beside that of the loop, for what people ask: what there is to be read isn't known beforehand, and may be much.

    With adaptive execution, which the decide step runs better without: what is empty is joined with nothing, what is small isn't
    sorted. Nothing is written to the home, which this user may have no right to.
    """
    return _asking(_session(to_ask(settings), scratch() / "spark.log"))


def to_ask(settings: Settings) -> Settings:
    """The settings by which a home is asked. One without a catalog is left as it is: a SQLite catalog makes its file when it is opened."""
    file = catalog_file(settings)
    return settings if file is None or file.is_file() else settings.model_copy(update={"home": scratch()})


@lru_cache(maxsize=1)
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="redrive-")


def scratch() -> Path:
    """A directory of this process, removed when it ends: for what asking writes."""
    return Path(_scratch().name)


def catalog_file(settings: Settings) -> Path | None:
    """The file of the catalog in profiles.yml, there or not; None for one that isn't SQLite's."""
    configuration = session_configuration(settings.project, {**os.environ, **settings.dbt_environment})
    name = configuration.get("spark.sql.defaultCatalog", "")
    found = re.fullmatch(r"jdbc:sqlite:([^?]+)(?:\?.*)?", configuration.get(f"spark.sql.catalog.{name}.uri", ""))
    return Path(found[1]).absolute() if found else None


@lru_cache(maxsize=1)
def _asking(session: SparkSession) -> SparkSession:
    asking = session.newSession()
    partitions = max(int(asking.conf.get("spark.sql.shuffle.partitions") or 1), _ASKED_PARTITIONS)
    asking.conf.set("spark.sql.adaptive.enabled", "true")
    asking.conf.set("spark.sql.adaptive.coalescePartitions.initialPartitionNum", str(partitions))
    return asking


@contextmanager
def _said_in(log: Path) -> Iterator[IO[bytes]]:
    """The file for what a process prints that is started here. If it can't be started, its last lines are shown."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > _LOG_BYTES:
        log.unlink()
    try:
        with log.open("ab") as file:
            yield file
    except Exception:
        os.write(2, b"".join(log.read_bytes().splitlines(keepends=True)[-20:]))
        raise


def in_short(error: BaseException | str) -> str:
    """What an error of Spark's says, in a line: the error, and what caused it first, without the JVM's stack."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not _STACK.match(line)]
    causes = [line for line in said if line.startswith("Caused by: ")]
    first = [line.removeprefix(": ") for line in said if line not in causes][:3]
    return redacted("; ".join([*first, *causes[-1:]]) or repr(error))


@dataclass(frozen=True)
class JavaError:
    """An exception of the JVM: its class, the classes of the frames that it was raised in, the innermost first, and Spark's own name of it.

    condition: such as `CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND`; None where it is none of Spark's.
    """

    name: str
    frames: tuple[str, ...]
    condition: str | None = None

    def is_raised_in(self, *prefixes: str) -> bool:
        """Whether one of its frames, or its own class, is of a package or class that begins so."""
        return any(name.startswith(prefixes) for name in (self.name, *self.frames))


def java_exception(error: BaseException) -> Any:
    """The JVM's own exception behind an error of Py4J's, or of PySpark's, which makes its own of some classes; None where there is none."""
    return getattr(error, "java_exception", None) or getattr(error, "_origin", None)


def java_errors(error: BaseException) -> list[JavaError]:
    """The exceptions of the JVM behind an error of Spark's, each followed by its cause; none where the JVM did not answer."""
    found: list[JavaError] = []
    with suppress(Exception):
        thrown = java_exception(error)
        while thrown is not None and len(found) < _MOST_CAUSES:
            frames = tuple(str(frame.getClassName()) for frame in thrown.getStackTrace())
            found.append(JavaError(str(thrown.getClass().getName()), frames, _condition(thrown)))
            thrown = thrown.getCause()
    return found


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
    """The schema that the tables live in."""
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
