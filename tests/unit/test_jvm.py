"""How Spark's JVM is started: with which options and jars."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkConf, SparkContext

from orchestration.tables import jvm
from orchestration.tables.package_jars import package_jars

CONFIGURATION = {"spark.master": "local[*]", "spark.jars.packages": "org.example:catalog:1.0", "spark.driver.extraJavaOptions": "-Dmine=1"}


class Properties(dict[str, str]):
    """System properties of a JVM."""

    def getProperty(self, name: str) -> str | None:  # noqa: N802  # as in Java
        return self.get(name)

    def setProperty(self, name: str, value: str) -> None:  # noqa: N802  # as in Java
        self[name] = value

    def clearProperty(self, name: str) -> None:  # noqa: N802  # as in Java
        self.pop(name, None)


class Gateway:
    """The connection to a JVM that has started. properties: those of the JVM; proc: None if this process has not started it."""

    def __init__(self, properties: Properties, proc: object = None) -> None:
        self.jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=properties)))
        self.proc = proc
        self.is_shut_down = False

    def shutdown(self) -> None:
        self.is_shut_down = True


@pytest.fixture(autouse=True)
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The configurations of the JVMs that would be started."""
    found: list[dict[str, str]] = []

    def launch(conf: SparkConf, _: dict[str, Any]) -> object:
        found.append(dict(conf.getAll()))
        return Gateway(Properties())

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jvm, "launch_gateway", launch)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda **_: None)
    return found


def test_the_first_start_resolves_packages_and_begins_anew_with_them_on_the_class_path(
    tmp_path: Path, started: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "org.example_catalog-1.0.jar"
    jar.touch()
    gateways: list[Gateway] = []

    def launch(conf: SparkConf, _: dict[str, Any]) -> Gateway:
        started.append(dict(conf.getAll()))
        resolved = {"spark.jars": jar.as_uri()} if "spark.jars.packages" in started[-1] else {}
        gateways.append(Gateway(Properties(resolved), SimpleNamespace(communicate=lambda: None)))
        return gateways[-1]

    monkeypatch.setattr(jvm, "launch_gateway", launch)
    jvm.start_jvm(CONFIGURATION, io.BytesIO(), brief=False)
    first, second = started
    assert first["spark.jars.packages"] == "org.example:catalog:1.0"
    assert "-XX:ArchiveClassesAtExit" not in first["spark.driver.extraJavaOptions"]
    assert "spark.jars.packages" not in second
    assert second["spark.driver.extraClassPath"] == str(jar)
    assert "-XX:ArchiveClassesAtExit" in second["spark.driver.extraJavaOptions"]
    assert [gateway.is_shut_down for gateway in gateways] == [True, False]
    # the next start has them at once
    jvm.start_jvm(CONFIGURATION, io.BytesIO(), brief=False)
    assert [conf["spark.driver.extraClassPath"] for conf in started[2:]] == [str(jar)]


@pytest.mark.parametrize(
    ("resolved", "proc"),
    [
        # nothing is known of the jars; they are gone; the JVM is the one that has started this process
        ({}, SimpleNamespace()),
        ({"spark.jars": "file:///gone/org.example_catalog-1.0.jar"}, SimpleNamespace()),
        ({"spark.jars": Path(__file__).as_uri()}, None),
    ],
)
def test_a_jvm_whose_jars_cannot_be_put_on_the_class_path_is_used_as_it_is(
    monkeypatch: pytest.MonkeyPatch, resolved: dict[str, str], proc: object
) -> None:
    gateways: list[Gateway] = []

    def launch(*_: object) -> Gateway:
        gateways.append(Gateway(Properties(resolved), proc))
        return gateways[-1]

    monkeypatch.setattr(jvm, "launch_gateway", launch)
    jvm.start_jvm(CONFIGURATION, io.BytesIO(), brief=False)
    assert [gateway.is_shut_down for gateway in gateways] == [False]


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
    jvm.start_jvm({**CONFIGURATION, "spark.master": "spark://host:7077"}, io.BytesIO(), brief=False)
    conf = started.pop()
    assert conf["spark.jars.packages"] == "org.example:catalog:1.0"
    assert "-XX:ArchiveClassesAtExit" in conf["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize("brief", [True, False])
def test_only_for_a_question_or_two_the_second_compiler_is_left_out(started: list[dict[str, str]], brief: bool) -> None:
    jvm.start_jvm(CONFIGURATION, io.BytesIO(), brief=brief)
    assert ("-XX:TieredStopAtLevel=1" in started.pop()["spark.driver.extraJavaOptions"]) is brief


def test_python_gets_no_jars_and_jvms_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = "/ivy/org.example_catalog-1.0.jar"
    properties = Properties(
        {
            "spark.jars": f"file://{resolved}",
            "spark.files": f"file:///etc/keys.txt,file://{resolved}",
            "spark.submit.pyFiles": f"{resolved},/opt/mine.zip",
        }
    )
    monkeypatch.setattr(jvm, "launch_gateway", lambda *_: Gateway(properties))
    jvm.start_jvm(CONFIGURATION, io.BytesIO(), brief=False)
    assert properties == {
        "spark.jars": f"file://{resolved}",
        "spark.files": "file:///etc/keys.txt",
        "spark.submit.pyFiles": "/opt/mine.zip",
    }
    # none are left where nothing else was
    properties |= {"spark.files": f"file://{resolved}", "spark.submit.pyFiles": resolved}
    jvm.start_jvm(CONFIGURATION, io.BytesIO(), brief=False)
    assert properties == {"spark.jars": f"file://{resolved}"}
