"""What a user installs: the wheel alone, in an environment and a directory where there is nothing of the repository."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it. site: where its packages lie."""

    environment: Path
    site: Path

    @property
    def project(self) -> Path:
        return self.site / "orchestration" / "_project"

    def call(self, directory: Path, *command: str, with_errors: bool = False) -> str:
        """Runs a command of the environment, as a user who has activated it does; returns what it wrote to standard output.

        with_errors: and to standard error, before it.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("REDRIVE_", "PYTHON", "PYSPARK_", "DAGSTER_"))}
        variables = kept | {"VIRTUAL_ENV": str(self.environment), "PATH": f"{self.environment / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            [str(self.environment / "bin" / command[0]), *command[1:]],
            cwd=directory,
            # the shell sets it, and profiles.yml reads it
            env=variables | {"PWD": str(directory)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stderr + done.stdout if with_errors else done.stdout

    def files(self) -> dict[str, str]:
        """What the installed project consists of."""
        paths = [path for path in self.project.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        return {path.relative_to(self.project).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Installed:
    """Builds the wheel and installs it."""
    uv = shutil.which("uv")
    assert uv, "the wheel is built and installed with uv"
    place = tmp_path_factory.mktemp("package")
    environment = place / "environment"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for command in (
        ["build", "--wheel", "--out-dir", str(place / "dist"), str(pytestconfig.rootpath)],
        ["venv", "--python", version, str(environment)],
    ):
        subprocess.run([uv, *command], check=True, capture_output=True)
    (wheel,) = (place / "dist").glob("*.whl")
    subprocess.run([uv, "pip", "install", "--python", str(environment / "bin" / "python"), str(wheel)], check=True, capture_output=True)
    return Installed(environment, environment / "lib" / f"python{version}" / "site-packages")


def test_the_wheel_holds_the_whole_project(installed: Installed, pytestconfig: pytest.Config) -> None:
    root = pytestconfig.rootpath
    folders = ("models", "macros", "dbt_project", "examples")
    paths = [root / "dbt_project.yml", root / "profiles.yml", *(path for folder in folders for path in (root / folder).rglob("*"))]
    expected = {path.relative_to(root).as_posix() for path in paths if path.is_file() and "__pycache__" not in path.parts}
    assert installed.files().keys() == expected


def test_the_demo_runs_in_an_empty_directory_and_dbt_in_an_initialised_one(installed: Installed, tmp_path: Path) -> None:
    before = installed.files()
    empty, rules = tmp_path / "empty", tmp_path / "rules"
    empty.mkdir()

    said = installed.call(empty, "redrive", "demo", "--seconds", "30", with_errors=True)
    assert "uv run" not in said
    assert [line for line in said.splitlines() if line.startswith("%")] == [], "lines of librdkafka"
    # lateness with its reason, the count in the topics, a dry run, and what to do next with its list
    parts = (
        r"Sent p50 \S+ s, p99 \S+ s after it was due\. .*a retry whose delay is shorter than the tick .* is late by the rest",
        r"lost 0, early 0, twice 0",
        r"a dry run: nothing is sent",
        r"redrive dlq redrive --list \S+ --reason",
    )
    assert re.search(".*".join(parts), " ".join(said.split())), said
    # a topic for commands, so that they can be given on the state that is left
    assert list((empty / ".redrive").rglob("redrive.commands-0"))
    # Spark makes an empty directory where it is started, at times
    assert {path.name for path in empty.iterdir()} - {"spark-warehouse"} == {".redrive"}
    decided = installed.call(empty, "redrive", "sql", "--format", "csv", "select count(*) > 0 as decided from decisions")
    assert decided.split() == ["decided", "true"]

    installed.call(empty, "redrive", "init", str(rules))
    assert (rules / "installed").readlink() == installed.project
    with (rules / "seeds" / "retry_policies.csv").open("a", encoding="utf-8") as file:
        file.write("ours,fixed(5s x 3)\n")
    installed.call(rules, "dbt", "seed")
    installed.call(rules, "dbt", "run")
    # on a state of its own, and by its own rules
    count = "select (select count(*) from messages) as messages, (select count(*) from retry_policies where policy = 'ours') as ours"
    assert installed.call(rules, "redrive", "sql", "--format", "csv", count).split() == ["messages,ours", "0,1"]
    # nothing is written to where the program is installed: it may be read-only
    assert installed.files() == before
