"""Describes problems of settings in lines that a user can act on: where the value was set, what is allowed, what may be meant."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from orchestration.settings.sources import PREFIX, TABLES, config_path, flattened, key_in, read_config
from orchestration.settings.values import SettingsError

if TYPE_CHECKING:
    # this import loads the Kafka client, which settings don't need
    from publisher import RejectedPropertiesError

Fields = Mapping[str, FieldInfo]
"""All settings, by name."""


def problem_of(fields: Fields, detail: ErrorDetails, changes: Mapping[str, object]) -> str:
    """One line: where, what is allowed, and the value (unless it may be a secret)."""
    name, *rest = (str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return _unknown(fields, name)
    where = _origin(name, rest[0] if rest else None, changes)
    text = str(detail["ctx"]["error"]) if detail["type"] == "value_error" else f"must be {allowed(fields, name)}"
    if name in TABLES or detail["type"] == "value_error":
        return f"{where}: {text}"
    return f"{where}: {text}, not {str(detail['input'])!r}"


# Options whose names differ from those of their settings.
_OPTIONS = {"idle_for_seconds": "--idle-for"}


def _origin(name: str, key: str | None, changes: Mapping[str, object]) -> str:
    if name in changes:
        return f"option {_OPTIONS.get(name, '--' + name.replace('_', '-'))}"
    variables = [
        variable
        for variable in os.environ
        if variable == f"{PREFIX}{name.upper()}"
        or (key and variable.startswith(f"{PREFIX}{name.upper()}__") and key_in(name, variable.partition("__")[2]) == key)
    ]
    if variables and os.environ[variables[0]]:
        return variables[0]
    path, content = read_config()
    if name in content:
        return f'{path}, [{name}] "{key}"' if key else f"{path}, {name}"
    return f"{PREFIX}{name.upper()} (not set)"


def where_set(name: str) -> str:
    """Where a Kafka property was set: a variable, or a line of redrive.toml; else its name."""
    for table in TABLES:
        stem = f"{PREFIX}{table.upper()}__"
        for variable, value in os.environ.items():
            if variable.startswith(stem) and value and key_in(table, variable.removeprefix(stem)) == name:
                return f"{variable} ({name})"
        path, content = read_config()
        if isinstance(content.get(table), dict) and name in dict(flattened(content[table])):
            return f'{path}{_line_of(path, table, name)}, [{table}] "{name}"'
    return f"Kafka property {name}"


def _line_of(path: Path, table: str, name: str) -> str:
    """`:` and the line number of a property in the settings file; empty if it is written as nested tables."""
    inside = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if text.startswith("["):
            inside = text.strip("[] ") == table
        elif inside and text.partition("=")[0].strip().strip("\"'") == name:
            return f":{number}"
    return ""


def rejected(error: RejectedPropertiesError) -> SettingsError:
    """The error for properties that a Kafka client refuses, with the places where they were set."""
    return SettingsError([f"{', '.join(map(where_set, error.names))}: {error}" if error.names else str(error)])


def _unknown(fields: Fields, name: str) -> str:
    if not name.startswith(PREFIX):
        # a table or a key of the file
        near = difflib.get_close_matches(name, [*fields], n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(fields)}"
        return f"{config_path()}, {name}: there is no such setting; {hint}"
    for table in sorted(TABLES, key=len, reverse=True):
        stem = f"{PREFIX}{table.upper()}"
        rest = name.removeprefix(stem)
        if name in (stem, f"{stem}__"):
            example = "connection, as in {stem}__SHOP" if table == "connections" else "Kafka property, as in {stem}__BOOTSTRAP_SERVERS"
            return f"{name}: one variable for each {example.format(stem=stem)}"
        if name.startswith(f"{stem}_"):
            return f"{name}: there is no such setting; did you mean {stem}__{rest.strip('_')} (two underscores)?"
    # compared without the common prefix, which would make any two names look similar
    known = ["CONFIG", *(field.upper() for field in fields if field not in TABLES)]
    near = difflib.get_close_matches(name.removeprefix(PREFIX), known, n=1)
    hint = f"did you mean {PREFIX}{near[0]}?" if near else f"there are: {', '.join(PREFIX + name for name in known)}"
    return f"{name}: there is no such setting; {hint}"


def allowed(fields: Fields, name: str) -> str:
    field = fields[name]
    if name == "connections":
        return "a table of addresses of databases"
    if name in TABLES:
        return "a table of Kafka properties"
    if options := getattr(field.annotation, "__args__", ()):
        return f"one of {', '.join(map(str, options))}"
    if field.annotation is Path:
        return "a path"
    if name in ("decisions_topic", "circuit_breakers_topic", "sequences_topic", "gates_topic", "commands_topic"):
        return "a topic's name, or empty for none"
    if name == "protected_topics":
        return "topics' names, separated by blanks; a * at the end: all names with this prefix"
    if field.annotation is str:
        return "1 to 100 letters, digits, dots, hyphens and underscores"
    if field.annotation is bool:
        return "true or false"
    kind = "a whole number" if field.annotation is int else "a number"
    least = next((item.ge for item in field.metadata if hasattr(item, "ge")), None)
    most = next((item.le for item in field.metadata if hasattr(item, "le")), None)
    return f"{kind} from {least} to {most}"
