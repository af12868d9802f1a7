"""Macros of the dbt project, rendered by Jinja alone: what they say is compared with what Python says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2

PROJECT = Path(__file__).parents[2]


class _ReturnedError(Exception):
    """What a macro returns, on its way out."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _return(value: Any) -> None:
    raise _ReturnedError(value)


def macros(folder: str, *names: str, **globals_: Any) -> Any:
    """Macros of a folder, as a module. Those that return a value are called by `returned`."""
    text = "".join((PROJECT / "macros" / folder / f"{name}.sql").read_text(encoding="utf-8") for name in names)
    environment = jinja2.Environment(extensions=["jinja2.ext.do"])
    return environment.from_string(text, globals={"return": _return, **globals_}).module


def returned(folder: str, name: str, **globals_: Any) -> Any:
    """What a macro without arguments returns, as dbt gives it to those that call it."""
    try:
        text = getattr(macros(folder, name, **globals_), name)()
    except _ReturnedError as end:
        return end.value
    raise AssertionError(f"{name} returns nothing, it says {text!r}")
