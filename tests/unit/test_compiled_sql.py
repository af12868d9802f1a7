"""SQL that dbt has compiled is used by other processes, as long as nothing that it depends on has changed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from orchestration.settings import load_settings
from orchestration.tables import dbt as module
from orchestration.tables.dbt import Dbt, sql_digest
from tests.dbt.harness import copy_of_the_project


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "redrive" / "compiled"


class Compiles(Dbt):
    """dbt that tells how often it compiles."""

    count = 0

    def _compile(self, arguments: list[str]) -> str:
        self.count += 1
        self.parsed_digest = self.parsed_digest or sql_digest(self.settings)
        return f"select {self.count}"


def another(home: Path, **settings: Any) -> Compiles:
    """dbt in another process."""
    return Compiles(load_settings(home=home, **settings))


def compiles(dbt: Compiles, inline: str = "select 1", **how: Any) -> int:
    """How often dbt compiles, when it is asked twice."""
    dbt.compiled(inline, **how)
    dbt.compiled(inline, **how)
    return dbt.count


def test_another_process_and_another_home_use_what_is_compiled(tmp_path: Path) -> None:
    assert compiles(another(tmp_path / "a")) == 1
    assert compiles(another(tmp_path / "a")) == 0
    assert compiles(another(tmp_path / "b")) == 0
    assert another(tmp_path / "c").compiled("select 1") == "select 1"


def test_what_asks_the_tables_is_compiled_each_time(tmp_path: Path) -> None:
    assert compiles(another(tmp_path), fresh=True) == 2
    assert compiles(another(tmp_path), fresh=True) == 2


def test_other_jinja_variables_or_environments_are_compiled_for_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiles(another(tmp_path))
    assert compiles(another(tmp_path), "select 2") == 1
    assert compiles(another(tmp_path), variables={"judge": "them"}) == 1
    # macros/decoding/stack_cut.sql reads it
    assert compiles(another(tmp_path, error_stack_bytes=1_000)) == 1
    # macros/decide/in_few_partitions.sql, too
    monkeypatch.setenv("REDRIVE_SHUFFLE_PARTITIONS", "7")
    assert compiles(another(tmp_path)) == 1
    monkeypatch.setenv("REDRIVE_SCHEMA", "another")
    assert compiles(another(tmp_path)) == 1
    monkeypatch.setenv("SOMETHING", "else")
    assert compiles(another(tmp_path)) == 0


def test_changed_sql_is_compiled_again(tmp_path: Path) -> None:
    project = copy_of_the_project(tmp_path)
    compiles(another(tmp_path, project=project))
    macro = project / "macros" / "decide" / "in_few_partitions.sql"
    macro.write_text(macro.read_text(encoding="utf-8") + "{# changed #}", encoding="utf-8")
    assert compiles(another(tmp_path, project=project)) == 1


def test_sql_that_has_changed_since_it_was_parsed_is_not_kept_for_others(tmp_path: Path) -> None:
    project = copy_of_the_project(tmp_path)
    older = another(tmp_path, project=project)
    compiles(older)
    macro = project / "macros" / "decide" / "in_few_partitions.sql"
    macro.write_text(macro.read_text(encoding="utf-8") + "{# changed #}", encoding="utf-8")
    # by the SQL of before, as dbt parses once
    older.compiled("select 2")
    assert compiles(another(tmp_path, project=project), "select 2") == 1


def test_a_variable_that_a_users_macro_reads_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = copy_of_the_project(tmp_path)
    (project / "macros" / "mine.sql").write_text("{% macro mine() %}{{ env_var( 'MINE', '' ) }}{% endmacro %}", encoding="utf-8")
    assert module._environment_of_sql(load_settings(project=project))["MINE"] is None
    compiles(another(tmp_path, project=project))
    monkeypatch.setenv("MINE", "x")
    assert compiles(another(tmp_path, project=project)) == 1


def test_without_a_place_for_files_each_process_compiles(tmp_path: Path, cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.touch()
    assert compiles(another(tmp_path)) == 1
    assert compiles(another(tmp_path)) == 1


def test_what_nobody_uses_any_more_is_removed(tmp_path: Path, cache: Path) -> None:
    compiles(another(tmp_path))
    (old,) = cache.iterdir()
    os.utime(old, (1, 1))
    # used again
    compiles(another(tmp_path))
    compiles(another(tmp_path), "select 2")
    assert old.exists()
    os.utime(old, (1, 1))
    compiles(another(tmp_path), "select 3")
    assert not old.exists()


def test_a_half_file_is_no_sql(tmp_path: Path, cache: Path) -> None:
    compiles(another(tmp_path))
    (kept,) = cache.iterdir()
    kept.write_bytes(b"\xff\xfe")
    assert compiles(another(tmp_path)) == 1
    shutil.rmtree(cache)
    assert compiles(another(tmp_path)) == 1
