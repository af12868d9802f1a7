"""`redrive init`: what it writes is what the program and dbt read, and it overwrites nothing."""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from pathlib import Path

import pytest
import yaml
from dbt.cli.main import dbtRunner
from typer.testing import CliRunner

from orchestration.cli.main import app
from orchestration.rules.seeds import read_seeds
from orchestration.settings import Settings, load_settings
from orchestration.settings.sources import installed_project
from orchestration.starter import directory as starter
from orchestration.starter.directory import StarterError, make_directory, relink
from orchestration.tables.dbt import dbt_args, variables_of
from orchestration.tables.query import list_tables

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An initialised directory, as the current one."""
    for name in [name for name in os.environ if name.startswith("REDRIVE_") and name != "REDRIVE_CODEGEN"]:
        monkeypatch.delenv(name)
    make_directory(tmp_path / "new")
    monkeypatch.chdir(tmp_path / "new")
    return tmp_path / "new"


def test_commands_there_use_its_rules_and_settings_and_the_installed_sql(made: Path) -> None:
    settings = load_settings()
    assert (settings.project, settings.seeds, settings.home) == (made, made / "seeds", made / ".redrive")
    assert settings.dbt_directory == PROJECT == installed_project()
    assert read_seeds(settings.seeds).digest == read_seeds(PROJECT / "dbt_project" / "seeds").digest
    assert list_tables(settings) == list_tables(load_settings(project=PROJECT))
    arguments = dbt_args("run", settings)
    assert arguments[arguments.index("--project-dir") + 1] == str(PROJECT)
    assert arguments[arguments.index("--profiles-dir") + 1] == str(made)


@pytest.mark.parametrize("variable", ["REDRIVE_PROJECT", "REDRIVE_CONFIG"])
def test_commands_elsewhere_are_led_there_by_a_variable(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, str(made / "redrive.toml" if variable == "REDRIVE_CONFIG" else made))
    settings = load_settings()
    assert (settings.project, settings.seeds, settings.dbt_directory) == (made, made / "seeds", PROJECT)
    assert settings.home == (made if variable == "REDRIVE_CONFIG" else tmp_path) / ".redrive"


def test_the_comments_in_redrive_toml_are_all_settings_with_their_defaults(made: Path) -> None:
    text = (made / "redrive.toml").read_text(encoding="utf-8").partition("\n[kafka]")[0]
    said = tomllib.loads(re.sub(r"^# (?=\w+ = )", "", text, flags=re.MULTILINE))
    assert said.keys() == Settings.model_fields.keys() - {"kafka", "kafka_java", "connections"}
    defaults = load_settings()
    paths = {"home": ".redrive", "project": ".", "seeds": "seeds"}
    assert said == {name: paths.get(name, getattr(defaults, name)) for name in said}
    examples = (made / "redrive.toml").read_text(encoding="utf-8").removeprefix(text)
    said = tomllib.loads(re.sub(r'^# (?=")', "", examples, flags=re.MULTILINE))
    assert said["kafka"]["bootstrap.servers"] == "broker:9092"
    assert said["kafka_java"]
    assert said["connections"]["shop"]


def test_a_second_time_nothing_is_overwritten(made: Path) -> None:
    (made / "redrive.toml").write_text("slots = 5\n", encoding="utf-8")
    (made / "README.md").unlink()
    outcome = CliRunner().invoke(app, ["init", str(made)])
    assert isinstance(outcome.exception, StarterError)
    assert "redrive.toml" in str(outcome.exception)
    assert "seeds/sources.csv" in str(outcome.exception)
    assert "README.md" not in str(outcome.exception)
    assert not (made / "README.md").exists()
    assert (made / "redrive.toml").read_text(encoding="utf-8") == "slots = 5\n"


def test_other_files_of_a_directory_are_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("kept", encoding="utf-8")
    outcome = CliRunner().invoke(app, ["init", str(tmp_path)])
    assert outcome.exit_code == 0
    assert (tmp_path / "notes.txt").read_text(encoding="utf-8") == "kept"
    assert str(tmp_path / "seeds" / "routes.csv") in outcome.stdout.splitlines()


def test_a_clone_is_not_taken_for_such_a_directory(tmp_path: Path) -> None:
    (tmp_path / "dbt_project.yml").write_text("name: redrive\nmodel-paths: [models]\n", encoding="utf-8")
    with pytest.raises(StarterError, match=r"has dbt_project\.yml already: nothing was written$"):
        make_directory(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["dbt_project.yml"]


def test_the_link_is_renewed_after_a_move(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = made / "installed"
    assert link.readlink() == PROJECT
    link.unlink()
    relink(load_settings())
    assert link.readlink() == PROJECT
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(PROJECT / "dbt_project", elsewhere / "dbt_project")
    for name in ("dbt_project.yml", "profiles.yml"):
        shutil.copy(PROJECT / name, elsewhere / name)
    monkeypatch.setattr(starter, "installed_project", lambda: elsewhere)
    with pytest.raises(StarterError, match="the link installed, which now leads to"):
        make_directory(made)
    assert link.readlink() == elsewhere


def test_variables_of_the_directory_are_given_to_the_installed_project(made: Path) -> None:
    file = made / "dbt_project.yml"
    text = file.read_text(encoding="utf-8")
    assert variables_of(load_settings())["pointer_retention_days"] == 7
    file.write_text(text.replace("pointer_retention_days: 7", "pointer_retention_days: 9"), encoding="utf-8")
    given = variables_of(load_settings())
    assert given["pointer_retention_days"] == 9
    # the ones that belong to the SQL are those of the installed project, whatever an older file says of them
    shipped = yaml.safe_load((PROJECT / "dbt_project.yml").read_text(encoding="utf-8"))["vars"]
    words = {
        "dialects",
        "any_dialect",
        "dialect_fields",
        "dialect_encodings",
        "error_kinds",
        "error_kind_precedence",
        "header_profiles",
        "no_topic",
        "policy_forms",
        "policy_options",
    }
    assert shipped.keys() - given.keys() == {*words, "unrestricted_privacy", "judge", "rules_hash", "upto", "watermark"}
    assert variables_of(load_settings(project=PROJECT)) == {}


def test_dbt_reads_all_of_the_project_there_and_writes_within_the_directory(made: Path) -> None:
    # the same resources as in a clone, and model files under paths that lead nowhere else
    outcome = dbtRunner().invoke(["parse", "--project-dir", str(made), "--profiles-dir", str(made), "--quiet", "--log-level-file", "none"])
    assert outcome.success, outcome.exception
    nodes = outcome.result.nodes.values()
    assert {node.name for node in nodes if node.resource_type == "model"} == {path.stem for path in PROJECT.glob("models/**/*.sql")}
    assert {node.name for node in nodes if node.resource_type == "seed"} == {path.stem for path in (made / "seeds").glob("*.csv")}
    for node in nodes:
        assert not Path(node.original_file_path).is_absolute()
        assert ".." not in Path(node.original_file_path).parts
