"""Starts the JVM of Spark: with classes from an archive, packages on the class path, and its output in a log."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from orchestration.output import one_line
from orchestration.tables.class_archive import class_archive
from orchestration.tables.package_jars import PackageJars, on_the_class_path, package_jars

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

# The first compiler alone: its code is a third faster than the one that counts for the second compiler how often it runs. The second one
# pays in a process that runs for minutes, or reads tens of millions of rows.
_FOR_A_QUESTION: Final = "-XX:TieredStopAtLevel=1"

# When it is larger than this, the log of Spark's output begins anew.
_LOG_BYTES = 1_000_000


def start_jvm(configuration: Mapping[str, str], log: IO[bytes], *, brief: bool) -> PackageJars | None:
    """Starts Spark's process in its own session: otherwise a signal to this process's group would end it in the middle of a step.

    It ends with this process, when its standard input is closed. brief: it answers a question or two, and ends. Returns where the jars that
    it resolves are to be kept; None if it resolves none, or they can't be used.
    """
    jars = package_jars(configuration)
    class_path = jars.class_path() if jars is not None else None
    if class_path is not None:
        configuration = on_the_class_path(configuration, class_path)
    options = [configuration.get(_JAVA_OPTIONS, "")]
    archive = class_archive(configuration.get("spark.jars.packages", "") + (class_path or ""))
    # jars that Spark resolves are not in the archive: the first start, which does it, writes none
    if archive is not None and (jars is None or class_path is not None) and (option := archive.option()):
        # Java would log each class that it leaves out
        options += ["-Xlog:cds=off -Xlog:cds+dynamic=off", option]
    if brief:
        options.append(_FOR_A_QUESTION)
    conf = SparkConf(loadDefaults=False)
    for name, value in {**configuration, _JAVA_OPTIONS: " ".join(options)}.items():
        conf.set(name, value)
    gateway = launch_gateway(conf, {"start_new_session": True, "stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)
    return jars if class_path is None else None


@contextmanager
def output_to(log: Path) -> Iterator[IO[bytes]]:
    """The file for the output of a process that is started inside. If the start fails, the last lines go to standard error."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > _LOG_BYTES:
        log.unlink()
    try:
        with log.open("ab") as file:
            yield file
    except Exception:
        for line in log.read_bytes().splitlines()[-20:]:
            print(one_line(line.decode(errors="replace")), file=sys.stderr)
        raise
