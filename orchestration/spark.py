"""The Spark session, with the configuration that dbt uses: profiles.yml is read by both, so there is one of it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined
from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from orchestration.output import redacted
from orchestration.settings import Settings

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
    os.environ.update(settings.dbt_environment)
    # the publisher runs in Spark's Python workers: they need what is installed here, not what `python3` happens to be
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings.home.mkdir(parents=True, exist_ok=True)
    builder = SparkSession.builder
    for name, value in session_configuration(settings.project).items():
        builder = builder.config(name, value)
    # says again, with the JVM's stack in JSON, what the exception says
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    if SparkContext._gateway is not None:
        return builder.getOrCreate()
    with _printing_to(settings.home / "logs" / "spark.log"):
        return builder.getOrCreate()


def session_to_ask(settings: Settings) -> SparkSession:
    """A session beside that of the loop, for what people ask: what there is to be read isn't known beforehand, and may be much.

    With adaptive execution, which a fold is better off without: what turns out to be empty is joined with nothing, what is small isn't
    sorted.
    """
    return _asking(start_session(settings))


@lru_cache(maxsize=1)
def _asking(session: SparkSession) -> SparkSession:
    asking = session.newSession()
    partitions = max(int(asking.conf.get("spark.sql.shuffle.partitions") or 1), _ASKED_PARTITIONS)
    asking.conf.set("spark.sql.adaptive.enabled", "true")
    asking.conf.set("spark.sql.adaptive.coalescePartitions.initialPartitionNum", str(partitions))
    return asking


@contextmanager
def _printing_to(log: Path) -> Iterator[None]:
    """Lets processes that are started here print into a file. If one can't be started, its last lines are shown."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > _LOG_BYTES:
        log.unlink()
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    except BaseException:
        os.write(before, b"".join(log.read_bytes().splitlines(keepends=True)[-20:]))
        raise
    finally:
        os.dup2(before, 2)
        os.close(before)


def in_short(error: BaseException | str) -> str:
    """What an error of Spark's says, in a line: the error, and what caused it first, without the JVM's stack."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not _STACK.match(line)]
    causes = [line for line in said if line.startswith("Caused by: ")]
    first = [line.removeprefix(": ") for line in said if line not in causes][:3]
    return redacted("; ".join([*first, *causes[-1:]]) or repr(error))


def session_configuration(project: Path) -> dict[str, str]:
    """The server_side_parameters of profiles.yml's target, with its env_var calls filled in."""
    return {str(name): str(value) for name, value in _target(project)["server_side_parameters"].items()}


def schema(project: Path) -> str:
    """The schema that the tables live in."""
    return str(_target(project)["schema"])


def _target(project: Path) -> dict[str, Any]:
    profile = yaml.safe_load((project / "profiles.yml").read_text(encoding="utf-8"))["redrive"]
    rendered: dict[str, Any] = _rendered(profile)
    target: dict[str, Any] = rendered["outputs"][rendered["target"]]
    return target


def _rendered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rendered(inner) for name, inner in value.items()}
    if isinstance(value, str):
        return Environment(undefined=StrictUndefined, autoescape=False).from_string(value).render(env_var=_env_var)
    return value


def _env_var(name: str, default: str | None = None) -> str:
    value = os.environ.get(name, default)
    if value is None:
        raise KeyError(f"profiles.yml needs the environment variable {name}, which is not set")
    return value
