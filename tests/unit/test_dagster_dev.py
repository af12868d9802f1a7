"""`redrive dagster` runs `dagster dev` with a home of its own, in which telemetry and the dialog are off."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from orchestration.cli.main import app
from orchestration.starter.directory import make_directory

PROJECT = Path(__file__).parents[2]


class Replaced(Exception):  # noqa: N818 - no error: this process would be another program now
    """The process became another program."""


@pytest.fixture
def became(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, str], Path]]:
    """What this process was replaced by: arguments, environment, directory."""
    found: list[tuple[list[str], dict[str, str], Path]] = []

    def execve(program: str, arguments: list[str], environment: dict[str, str]) -> None:
        assert program == arguments[0] == sys.executable
        found.append((arguments[1:], environment, Path.cwd()))
        raise Replaced

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setenv("REDRIVE_PROJECT", str(PROJECT))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    return found


def _call(*arguments: str) -> None:
    assert isinstance(CliRunner().invoke(app, ["dagster", *arguments]).exception, Replaced)


def test_dagster_has_a_home_in_the_state_with_telemetry_and_the_dialog_off(
    tmp_path: Path, became: list[tuple[list[str], dict[str, str], Path]]
) -> None:
    (tmp_path / "redrive.toml").write_text("slots = 3\n")
    _call("--home", "state", "--port", "3333", "--verbose")
    ((arguments, environment, directory),) = became
    assert (arguments, directory) == (["-m", "dagster", "dev", "--port", "3333", "--verbose"], PROJECT)
    home = Path(environment["DAGSTER_HOME"])
    assert home == tmp_path / "state" / "dagster"
    said = yaml.safe_load((home / "dagster.yaml").read_text(encoding="utf-8"))
    assert (said["telemetry"]["enabled"], said["nux"]["enabled"]) == (False, False)
    # it starts in the project: what was found from here is named in full
    assert environment["REDRIVE_HOME"] == str(tmp_path / "state")
    assert environment["REDRIVE_CONFIG"] == str(tmp_path / "redrive.toml")


def test_without_a_clone_dagster_is_told_what_to_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, became: list[tuple[list[str], dict[str, str], Path]]
) -> None:
    make_directory(tmp_path / "rules")
    monkeypatch.setenv("REDRIVE_PROJECT", str(tmp_path / "rules"))
    _call("--port", "3333")
    _call("-m", "my.definitions")
    assert [arguments for arguments, _, _ in became] == [
        ["-m", "dagster", "dev", "--module-name", "orchestration.definitions", "--port", "3333"],
        ["-m", "dagster", "dev", "-m", "my.definitions"],
    ]
    assert became[0][2] == tmp_path / "rules"


def test_a_pyproject_of_an_application_beside_the_rules_chooses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, became: list[tuple[list[str], dict[str, str], Path]]
) -> None:
    make_directory(tmp_path / "rules")
    monkeypatch.setenv("REDRIVE_PROJECT", str(tmp_path / "rules"))
    for text in ("[tool.ruff]\nline-length = 100\n", "[tool.dagster]\nmodule_name = 'mine'\n", "[tool"):
        (tmp_path / "rules" / "pyproject.toml").write_text(text, encoding="utf-8")
        _call()
    ours = ["-m", "dagster", "dev", "--module-name", "orchestration.definitions"]
    assert [arguments for arguments, _, _ in became] == [ours, ours[:3], ours]


def test_files_of_secrets_are_named_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, became: list[tuple[list[str], dict[str, str], Path]]
) -> None:
    (tmp_path / "word").write_text("secret\n", encoding="utf-8")
    monkeypatch.setenv("REDRIVE_KAFKA__SASL_PASSWORD", "file:word")
    _call()
    assert became[0][1]["REDRIVE_KAFKA__SASL_PASSWORD"] == f"file:{tmp_path / 'word'}"


def test_what_a_user_has_changed_or_chosen_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, became: list[tuple[list[str], dict[str, str], Path]]
) -> None:
    _call("--home", "state")
    own = tmp_path / "state" / "dagster" / "dagster.yaml"
    own.write_text("telemetry: {enabled: false}\n", encoding="utf-8")
    # the call before has gone to the project
    monkeypatch.chdir(tmp_path)
    _call("--home", "state")
    assert became[-1][1]["DAGSTER_HOME"] == str(own.parent)
    assert own.read_text(encoding="utf-8") == "telemetry: {enabled: false}\n"
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "elsewhere"))
    monkeypatch.chdir(tmp_path)
    _call("--home", "other")
    assert became[-1][1]["DAGSTER_HOME"] == str(tmp_path / "elsewhere")
    assert not (tmp_path / "other").exists()


def test_dagsters_temporary_folders_are_no_part_of_the_project() -> None:
    assert ".tmp_dagster_home_*/" in (PROJECT / ".gitignore").read_text(encoding="utf-8").splitlines()
