"""The jars of Spark's packages: what a start has resolved is on the class path of later ones, where that means the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestration.tables.package_jars import PackageJars, on_the_class_path, package_jars

LOCAL = {"spark.master": "local[*]", "spark.jars.packages": "org.example:catalog:1.0"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


def known(tmp_path: Path, *names: str) -> tuple[PackageJars, list[Path]]:
    """Jars that a start has resolved, in a directory whose name has a blank; Spark itself has `shared-1.0.jar`."""
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "shared-1.0.jar").touch()
    (tmp_path / "my jars").mkdir()
    jars = [tmp_path / "my jars" / name for name in names]
    for jar in jars:
        jar.touch()
    kept = PackageJars(tmp_path / "kept" / "k.txt", tmp_path / "spark")
    kept.keep(",".join(jar.as_uri() for jar in jars))
    return kept, jars


def test_what_a_start_has_resolved_is_known_to_the_next_but_for_what_spark_has_itself(tmp_path: Path) -> None:
    kept, (catalog, _, driver) = known(tmp_path, "org.example_catalog-1.0.jar", "org.example_shared-1.0.jar", "org.example_driver-1.0.jar")
    assert kept.class_path() == f"{catalog}:{driver}"
    # in the order of Spark's list, which says what comes first
    assert on_the_class_path(LOCAL, "a:b") == {"spark.master": "local[*]", "spark.driver.extraClassPath": "a:b"}


def test_when_a_jar_is_gone_the_packages_are_resolved_again(tmp_path: Path) -> None:
    kept, (first, _) = known(tmp_path, "org.example_catalog-1.0.jar", "org.example_driver-1.0.jar")
    first.unlink()
    assert kept.class_path() is None


@pytest.mark.parametrize("resolved", ["", "https://example.org/catalog-1.0.jar", "file:///nowhere/org.example_catalog-1.0.jar"])
def test_what_is_not_in_files_is_not_kept(tmp_path: Path, resolved: str) -> None:
    kept = PackageJars(tmp_path / "k.txt", tmp_path)
    kept.keep(resolved)
    assert kept.class_path() is None
    assert not kept.file.exists()


def test_a_directory_that_cannot_be_written_keeps_nobody_from_starting(tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    jar = tmp_path / "org.example_catalog-1.0.jar"
    jar.touch()
    PackageJars(tmp_path / "a file" / "k.txt", tmp_path / "spark").keep(jar.as_uri())


def test_other_packages_or_repositories_are_resolved_for_themselves() -> None:
    others = [
        LOCAL,
        {**LOCAL, "spark.jars.packages": "org.example:catalog:1.1"},
        {**LOCAL, "spark.jars.repositories": "https://example.org"},
    ]
    files = [jars.file for other in others if (jars := package_jars(other)) is not None]
    assert len({*files}) == 3


@pytest.mark.parametrize(
    "configuration",
    [
        {**LOCAL, "spark.master": "spark://host:7077"},
        {**LOCAL, "spark.driver.extraClassPath": "/mine.jar"},
        {**LOCAL, "spark.jars": "/mine.jar"},
        {"spark.master": "local[*]"},
    ],
)
def test_where_the_class_path_would_mean_something_else_spark_resolves_packages(configuration: dict[str, str]) -> None:
    assert package_jars(configuration) is None


@pytest.mark.parametrize("name", ["SPARK_HOME", "SPARK_CONF_DIR"])
def test_a_spark_that_is_configured_elsewhere_resolves_packages(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert package_jars(LOCAL) is not None
    monkeypatch.setenv(name, "/opt/spark")
    assert package_jars(LOCAL) is None


def test_the_place_is_below_the_cache(cache: Path) -> None:
    jars = package_jars(LOCAL)
    assert jars is not None
    assert jars.file.is_relative_to(cache)
    # Spark's own jars
    assert [*jars.provided.glob("spark-sql_*.jar")]
