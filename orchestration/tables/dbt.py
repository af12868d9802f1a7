"""Runs dbt in this process, which parses the project once. A subprocess for each command would start a JVM each time."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from orchestration.files import copy_if_there
from orchestration.settings import Settings
from orchestration.tables.compiled_sql import compiled_sql
from orchestration.tables.spark import in_short, schema, scratch, to_ask

if TYPE_CHECKING:
    from dbt.cli.main import dbtRunner, dbtRunnerResult


class DbtError(Exception):
    """A dbt command failed. The message contains the messages of the failed nodes."""


# As Jinja calls it.
_ENV_VAR = re.compile(rb"""env_var\(\s*['"](\w+)['"]""")

# dbt keeps adapters and flags for the whole process: two commands at once would use each other's
_ONE_AT_A_TIME = threading.RLock()


def variables_of(settings: Settings) -> dict[str, object]:
    """The vars in the dbt_project.yml of a directory made by `redrive init`. dbt runs in another directory, so they are passed to it.

    Only what is a number in the installed project: lists and words belong to the SQL, and an older copy of them must not hide what an
    upgrade has added.
    """
    if settings.project == settings.dbt_directory:
        return {}
    numbers = {name for name, value in _vars_in(settings.dbt_directory).items() if isinstance(value, int)}
    return {name: value for name, value in _vars_in(settings.project).items() if name in numbers}


def _vars_in(project: Path) -> dict[str, object]:
    content = yaml.safe_load((project / "dbt_project.yml").read_text(encoding="utf-8")) or {}
    return dict(content.get("vars") or {})


def sql_digest(settings: Settings) -> str:
    """A hash of the project's SQL and of the variables that the settings give it. If it has changed, the views are made again."""
    project, variables = settings.dbt_directory, variables_of(settings)
    digest = hashlib.sha256()
    for path in _files_of_sql(project):
        digest.update(path.relative_to(project).as_posix().encode() + b"\0" + path.read_bytes())
    if variables:
        digest.update(json.dumps(variables, sort_keys=True).encode())
    return digest.hexdigest()


def _files_of_sql(project: Path) -> list[Path]:
    files = [project / "dbt_project.yml", *sorted(project.glob("models/**/*")), *sorted(project.glob("macros/**/*"))]
    return [path for path in files if path.is_file()]


def _environment_of_sql(settings: Settings) -> dict[str, str | None]:
    """The variables of the environment that the project's SQL reads, with their values; None: not set."""
    named = {name.decode() for path in _files_of_sql(settings.dbt_directory) for name in _ENV_VAR.findall(path.read_bytes())}
    return {name: settings.dbt_environment.get(name, os.environ.get(name)) for name in sorted(named)}


def dbt_args(
    command: str,
    settings: Settings,
    *,
    select: Sequence[str] = (),
    exclude: Sequence[str] = (),
    variables: Mapping[str, object] | None = None,
    writes_to: Path | None = None,
) -> list[str]:
    """The arguments of a dbt command, as data.

    dbt caches and writes only what a later command in this process needs, which saves time. Target and logs are in the loop's home, or in
    `writes_to`, so that they don't collide with those of a `dbt run` in the project's directory.
    """
    place = writes_to or settings.home
    given = {**variables_of(settings), **(variables or {})}
    return [
        command,
        *("--project-dir", str(settings.dbt_directory)),
        *("--profiles-dir", str(settings.project)),
        *("--target-path", str(place / "dbt")),
        *("--log-path", str(place / "logs")),
        *("--log-level-file", "none", "--quiet", "--no-use-colors"),
        *(() if command == "parse" else ("--no-populate-cache", "--no-write-json")),
        *(("--select", *select) if select else ()),
        *(("--exclude", *exclude) if exclude else ()),
        *(("--vars", json.dumps(given)) if given else ()),
    ]


def dbt_to_ask(settings: Settings) -> Dbt:
    """dbt that writes nothing to the home. It copies what the loop's dbt has parsed, which saves most of the parsing."""
    place = scratch()
    copy_if_there(settings.parsed_project, place / "dbt")
    return Dbt(to_ask(settings), place)


@dataclass(frozen=True)
class Tested:
    """The result of one of dbt's tests. warns: the test only warns. failures: how many rows are wrong. message: dbt's message."""

    passed: bool
    warns: bool
    failures: int
    message: str


@dataclass(frozen=True)
class Column:
    """A column as a model's YAML describes it. type: of Spark's SQL."""

    name: str
    type: str
    description: str


@dataclass(frozen=True)
class Compiled:
    """A model as dbt compiles it.

    reads: the ids of what it reads. columns: those that its YAML lists.
    """

    id: str
    name: str
    sql: str
    reads: tuple[str, ...]
    config: Mapping[str, Any]
    description: str
    columns: tuple[Column, ...]

    @property
    def is_ephemeral(self) -> bool:
        """Whether it has no table or view of its own."""
        return bool(self.config["materialized"] == "ephemeral")


@dataclass
class Dbt:
    """dbt for one project. Commands of a process run one after another."""

    settings: Settings
    writes_to: Path | None = None
    """The directory for the files that dbt writes, if not the home."""
    parsed_digest: str = ""
    """The hash of the SQL that was parsed; empty before it is."""
    _parsed: bytes | None = None
    _compiled: dict[str, str] = field(default_factory=dict)

    def parse(self) -> None:
        """Parses the project, unless it is parsed already. Raises DbtError."""
        with _ONE_AT_A_TIME:
            self._runner()

    def run(
        self,
        command: str,
        *,
        select: Sequence[str] = (),
        exclude: Sequence[str] = (),
        variables: Mapping[str, object] | None = None,
    ) -> None:
        """Runs a command. Raises DbtError with all messages."""
        with _ONE_AT_A_TIME:
            self._invoke(self._runner(), self._args(command, select=select, exclude=exclude, variables=variables))

    def test(self, names: Sequence[str]) -> dict[str, Tested]:
        """Runs data tests, by name. A test that fails is a result; DbtError is raised if dbt itself fails."""
        with _ONE_AT_A_TIME:
            outcome = self._runner().invoke(self._args("test", select=names))
        if outcome.exception is not None:
            raise DbtError(str(outcome.exception))
        found = {
            str(one.node.name): Tested(
                passed=one.status == "pass",
                warns=one.status == "warn",
                failures=int(one.failures or 0),
                message=in_short(one.message or ""),
            )
            for one in getattr(outcome.result, "results", [])
        }
        if missing := sorted(set(names) - found.keys()):
            raise DbtError(f"dbt has not run {', '.join(missing)}")
        return found

    def compiled(self, inline: str, variables: Mapping[str, object] | None = None, *, fresh: bool = False) -> str:
        """The SQL that a piece of Jinja becomes in this project: compiled once, also by other processes, as that takes seconds.

        fresh: compiled again in any case, as its macros ask the tables, which may have changed.
        """
        arguments = [*self._args("compile", variables=variables), "--log-level", "none", "--inline", inline]
        asked = json.dumps(arguments)
        if not fresh and asked not in self._compiled:
            given, digest = {**variables_of(self.settings), **(variables or {})}, sql_digest(self.settings)
            kept = compiled_sql(inline, given, digest, schema(self.settings.project), _environment_of_sql(self.settings))
            sql = kept.read() if kept else None
            if sql is None:
                sql = self._compile(arguments)
                # not if the files have changed since they were parsed
                if kept and self.parsed_digest == digest:
                    kept.keep(sql)
            self._compiled[asked] = sql
        return self._compile(arguments) if fresh else self._compiled[asked]

    def _compile(self, arguments: list[str]) -> str:
        with _ONE_AT_A_TIME:
            return str(self._invoke(self._runner(), arguments).result.results[0].node.compiled_code)

    def compiled_models(self, select: str, *, inject: bool = True) -> list[Compiled]:
        """The selected models, compiled.

        inject: with the SQL of the ephemeral models that they read; else such a model is called `__dbt__cte__<name>` in the SQL.
        """
        options = [*(() if inject else ("--no-inject-ephemeral-ctes",)), "--log-level", "none"]
        arguments = [*self._args("compile", select=[select], exclude=["resource_type:test"]), *options]
        with _ONE_AT_A_TIME:
            nodes = [result.node for result in self._invoke(self._runner(), arguments).result.results]
        return [
            Compiled(
                id=node.unique_id,
                name=node.name,
                sql=node.compiled_code,
                reads=tuple(node.depends_on.nodes),
                config=node.config.to_dict(),
                description=node.description.strip(),
                columns=tuple(Column(column.name, column.data_type or "", column.description) for column in node.columns.values()),
            )
            for node in nodes
            if node.resource_type == "model"
        ]

    def _args(
        self,
        command: str,
        *,
        select: Sequence[str] = (),
        exclude: Sequence[str] = (),
        variables: Mapping[str, object] | None = None,
    ) -> list[str]:
        return dbt_args(command, self.settings, select=select, exclude=exclude, variables=variables, writes_to=self.writes_to)

    def _runner(self) -> dbtRunner:
        # here: the import takes two seconds and more, and a start whose SQL and rules have not changed needs no dbt
        from dbt.cli.main import dbtRunner

        # set before each command: models are compiled with the environment, which other settings in this process may have changed
        os.environ.update(self.settings.dbt_environment)
        if self._parsed is None:
            self.parsed_digest = sql_digest(self.settings)
            self._parsed = pickle.dumps(self._invoke(dbtRunner(), self._args("parse")).result)
        # dbt changes the manifest that it is given, so each command gets a fresh one; pickle is several times as fast as a deep copy
        return dbtRunner(manifest=pickle.loads(self._parsed))

    @staticmethod
    def _invoke(runner: dbtRunner, args: list[str]) -> dbtRunnerResult:
        outcome = runner.invoke(args)
        if outcome.success:
            return outcome
        messages = [str(outcome.exception)] if outcome.exception else []
        messages += [
            f"{node.node.name}: {in_short(node.message)}"
            for node in getattr(outcome.result, "results", [])
            if node.status in ("error", "fail", "runtime error")
        ]
        raise DbtError("\n".join(messages) or f"dbt {args[0]} failed")
