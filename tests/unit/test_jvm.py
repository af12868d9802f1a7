"""How Spark's JVM is started: with which options and jars."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf, SparkContext

from orchestration.tables import jvm
from orchestration.tables.package_jars import package_jars

CONFIGURATION = {"spark.master": "local[*]", "spark.jars.packages": "org.example:catalog:1.0", "spark.driver.extraJavaOptions": "-Dmine=1"}


@pytest.fixture(autouse=True)
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The configurations of the JVMs that would be started."""
    found: list[dict[str, str]] = []

    def launch(conf: SparkConf, _: dict[str, Any]) -> object:
        found.append(dict(conf.getAll()))
        return object()

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jvm, "launch_gateway", launch)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda **_: None)
    return found


def test_the_first_start_resolves_packages_and_the_next_has_them_on_the_class_path(tmp_path: Path, started: list[dict[str, str]]) -> None:
    jars = jvm.start_jvm(CONFIGURATION, io.BytesIO(), brief=False)
    assert jars is not None
    assert started.pop()["spark.jars.packages"] == "org.example:catalog:1.0"
    jar = tmp_path / "org.example_catalog-1.0.jar"
    jar.touch()
    jars.keep(jar.as_uri())
    assert jvm.start_jvm(CONFIGURATION, io.BytesIO(), brief=False) is None
    later = started.pop()
    assert "spark.jars.packages" not in later
    assert later["spark.driver.extraClassPath"] == str(jar)


def test_classes_are_archived_only_where_those_of_the_packages_are_on_the_class_path(tmp_path: Path, started: list[dict[str, str]]) -> None:
    def option() -> str:
        jvm.start_jvm(CONFIGURATION, io.BytesIO(), brief=False)
        return started.pop()["spark.driver.extraJavaOptions"]

    assert option() == "-Dmine=1"
    jars = package_jars(CONFIGURATION)
    assert jars is not None
    jar = tmp_path / "org.example_catalog-1.0.jar"
    jar.touch()
    jars.keep(jar.as_uri())
    assert "-XX:ArchiveClassesAtExit" in option()


def test_on_a_cluster_packages_are_resolved_and_classes_are_archived_all_the_same(started: list[dict[str, str]]) -> None:
    assert jvm.start_jvm({**CONFIGURATION, "spark.master": "spark://host:7077"}, io.BytesIO(), brief=False) is None
    conf = started.pop()
    assert conf["spark.jars.packages"] == "org.example:catalog:1.0"
    assert "-XX:ArchiveClassesAtExit" in conf["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize("brief", [True, False])
def test_only_for_a_question_or_two_the_second_compiler_is_left_out(started: list[dict[str, str]], brief: bool) -> None:
    jvm.start_jvm(CONFIGURATION, io.BytesIO(), brief=brief)
    assert ("-XX:TieredStopAtLevel=1" in started.pop()["spark.driver.extraJavaOptions"]) is brief
