"""Starts the JVM of Spark: with classes from an archive, packages on the class path, and its output in a log."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from orchestration.output import one_line
from orchestration.tables.class_archive import class_archive
from orchestration.tables.package_jars import PackageJars, on_the_class_path, package_jars

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_JARS = "spark.jars"
_PYTHON_FILES = "spark.submit.pyFiles"
_FILES = "spark.files"

# The first compiler alone: its code is a third faster than the one that counts for the second compiler how often it runs. The second one
# pays in a process that runs for minutes, or reads tens of millions of rows.
_FOR_A_QUESTION: Final = "-XX:TieredStopAtLevel=1"

# When it is larger than this, the log of Spark's output begins anew.
_LOG_BYTES = 1_000_000


def start_jvm(configuration: Mapping[str, str], log: IO[bytes], *, brief: bool) -> None:
    """Starts Spark's process. It ends with this process, when its standard input is closed. brief: it answers a question or two, and ends.

    Where nobody has resolved the packages yet, a first process does that, and ends: a second one has the jars on its class path.
    """
    jars = package_jars(configuration)
    class_path = jars.class_path() if jars is not None else None
    gateway = _launched(configuration, jars, class_path, log, brief=brief)
    # there is no process where this one was started by Spark
    if jars is not None and class_path is None and gateway.proc is not None:
        jars.keep(gateway.jvm.java.lang.System.getProperty(_JARS) or "")
        if (class_path := jars.class_path()) is not None:
            gateway.shutdown()
            gateway.proc.communicate()
            gateway = _launched(configuration, jars, class_path, log, brief=brief)
    _keep_jars_from_python(gateway.jvm.java.lang.System)
    SparkContext._ensure_initialized(gateway=gateway)


def _launched(
    configuration: Mapping[str, str], jars: PackageJars | None, class_path: str | None, log: IO[bytes], *, brief: bool
) -> JavaGateway:
    """Spark's process, in its own session: otherwise a signal to this process's group would end it in the middle of a step."""
    if class_path is not None:
        configuration = on_the_class_path(configuration, class_path)
    options = [configuration.get(_JAVA_OPTIONS, "")]
    archive = class_archive(configuration.get("spark.jars.packages", "") + (class_path or ""))
    # jars that Spark resolves are not in the archive: a process that does it writes none
    if archive is not None and (jars is None or class_path is not None) and (option := archive.option()):
        # Java would log each class that it leaves out
        options += ["-Xlog:cds=off -Xlog:cds+dynamic=off", option]
    if brief:
        options.append(_FOR_A_QUESTION)
    conf = SparkConf(loadDefaults=False)
    for name, value in {**configuration, _JAVA_OPTIONS: " ".join(options)}.items():
        conf.set(name, value)
    return launch_gateway(conf, {"start_new_session": True, "stdout": log, "stderr": log})  # type: ignore[no-untyped-call]


def _keep_jars_from_python(system: Any) -> None:
    """Removes the packages' jars from the files that Spark gives to Python as modules, and from those that it copies for its tasks.

    Spark puts the jars that it has resolved there, in case they hold Python code, and into `spark.jars`, from which the JVMs have them.
    Each task has Python forget what it knows of its path, and Python 3.11 then reads the directory of each archive on it: half a second.
    """
    given = (system.getProperty(_PYTHON_FILES) or "").split(",")
    jars = {name.rpartition("/")[2] for name in given if name.endswith(".jar")}
    for files in (_PYTHON_FILES, _FILES):
        names = (system.getProperty(files) or "").split(",")
        if left := [name for name in names if name and name.rpartition("/")[2] not in jars]:
            system.setProperty(files, ",".join(left))
        else:
            system.clearProperty(files)


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
