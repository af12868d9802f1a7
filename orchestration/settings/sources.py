"""Where settings are read from: the environment over ``redrive.toml``."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_settings import PydanticBaseSettingsSource

from orchestration.settings.values import SettingsError

PREFIX: Final = "REDRIVE_"
CONFIG_VARIABLE: Final = "REDRIVE_CONFIG"
_CONFIG_FILE: Final = "redrive.toml"
TABLES: Final = ("kafka", "kafka_java", "connections")
_PATHS: Final = ("home", "project", "seeds")

# Variables that only the SQL reads: dbt_environment puts them into the environment.
_FOR_SQL: Final = {"REDRIVE_INTERNAL_TOPICS"}

# Old names of settings: an old name counts if the new one is not set. The next version removes them.
_FORMER_NAMES: Final = {"gate_release_rate": "circuit_breaker_release_rate"}

# The properties of librdkafka that are spelled with underscores: in the environment, underscores otherwise stand for dots.
_WITH_UNDERSCORES: Final = {"log_level"}


# The top of this package. In a wheel it contains the project as `_project` (.ci/wheel.py); in a clone its parent is the project.
_PACKAGE: Final = Path(__file__).resolve().parents[1]


def installed_project() -> Path:
    """The dbt project that comes with this code: the root of the clone, or the copy in the wheel."""
    inside = _PACKAGE / "_project"
    return inside if inside.is_dir() else _PACKAGE.parent


def is_clone() -> bool:
    """Whether this code runs from a clone of the repository."""
    return installed_project() == _PACKAGE.parent


def find_project() -> Path:
    """The default of the setting `project`."""
    here = Path.cwd()
    return here if (here / "dbt_project.yml").is_file() else installed_project()


def find_seeds(project: Path) -> Path:
    """The default of the setting `seeds`. A directory made by `redrive init` has them in `seeds`."""
    inside = project / "dbt_project" / "seeds"
    return inside if inside.is_dir() or not (project / "seeds").is_dir() else project / "seeds"


class _Source(PydanticBaseSettingsSource):
    """The part of pydantic's interface that a source of whole dictionaries does not need."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError


class Environment(_Source):
    """Settings from variables, by field. An unknown variable keeps its name, so that it is refused like any unknown setting."""

    def __call__(self) -> dict[str, Any]:
        found: dict[str, Any] = {table: {} for table in TABLES}
        former: dict[str, Any] = {}
        dbt_variables = _dbt_variables()
        for variable, value in os.environ.items():
            if not variable.startswith(PREFIX) or variable == CONFIG_VARIABLE or not value:
                continue
            name, separator, rest = variable.removeprefix(PREFIX).partition("__")
            field = name.lower()
            if field in TABLES and rest:
                found[field][key_in(field, rest)] = value
            elif field in self.settings_cls.model_fields and field not in TABLES and name.isupper() and not separator:
                found[field] = value
            elif field in _FORMER_NAMES and name.isupper() and not separator:
                former[_FORMER_NAMES[field]] = value
            elif variable not in dbt_variables and variable not in _FOR_SQL:
                found[variable] = value
        return {**former, **{name: value for name, value in found.items() if value}}


class TomlFile(_Source):
    def __call__(self) -> dict[str, Any]:
        path, content = read_config()
        for table in TABLES:
            if isinstance(content.get(table), dict):
                # In TOML, dotted names without quotes are nested tables: they are flattened to property names.
                content[table] = {key: file_from(path.absolute().parent, value) for key, value in flattened(content[table])}
        for name in _FORMER_NAMES.keys() & content.keys():
            content.setdefault(_FORMER_NAMES[name], content.pop(name))
        for name in _PATHS:
            if isinstance(content.get(name), str):
                content[name] = path.absolute().parent / Path(content[name]).expanduser()
        return content


def file_from(directory: Path, value: Any) -> Any:
    """The value of a property; if it names a file (`file:` and a path), with the whole path, which starts at the directory."""
    if not (isinstance(value, str) and value.startswith("file:")):
        return value
    return f"file:{directory / Path(value.removeprefix('file:')).expanduser()}"


def _dbt_variables() -> set[str]:
    """The variables that the project's dbt files read, which must not be refused as unknown."""
    path, content = read_config()
    named = content.get("project")
    in_file = path.absolute().parent / Path(named).expanduser() if isinstance(named, str) and named else find_project()
    project = Path(os.environ.get(f"{PREFIX}PROJECT") or in_file)
    found: set[str] = set()
    for name in ("profiles.yml", "dbt_project.yml"):
        if (path := project / name).is_file():
            found.update(re.findall(rf"env_var\(\s*['\"]({PREFIX}\w+)", path.read_text(encoding="utf-8")))
    return found


def config_path() -> Path:
    return Path(os.environ.get(CONFIG_VARIABLE) or _CONFIG_FILE).expanduser()


def read_config() -> tuple[Path, dict[str, Any]]:
    path = config_path()
    try:
        return path, tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not os.environ.get(CONFIG_VARIABLE):
            return path, {}
        reason = "there is no such file"
    except OSError as error:
        reason = f"it can't be read: {error.strerror}"
    except UnicodeDecodeError:
        reason = "it is not UTF-8 text"
    except tomllib.TOMLDecodeError as error:
        # this error names a line and a column, and never quotes the text
        reason = f"it is not valid TOML: {error}"
    where = f"{CONFIG_VARIABLE} names {path}" if os.environ.get(CONFIG_VARIABLE) else str(path)
    raise SettingsError([f"{where}: {reason}"])


def flattened(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def key_in(table: str, rest: str) -> str:
    """The key in a table that a variable sets, by the rest of the variable's name."""
    name = rest.lower()
    if table == "connections":
        return name
    return name if name in _WITH_UNDERSCORES else name.replace("_", ".")
