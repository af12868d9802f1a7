"""Options that several commands share, declared once: a parameter whose type is a dataclass becomes one option for each of its fields."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


def with_bundles(command: Callable[..., None]) -> Callable[..., None]:
    """The command with a signature for Typer: options in place of each dataclass, which is made of their values when the command is called.

    The parameter's default, an object of the dataclass, has the defaults of its options.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    bundles: dict[str, Any] = {}
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if not dataclasses.is_dataclass(kind):
            parameters.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        bundles[parameter.name] = kind
        options = get_type_hints(kind, include_extras=True)
        parameters += [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=getattr(parameter.default, field.name), annotation=options[field.name]
            )
            for field in dataclasses.fields(kind)
        ]

    @functools.wraps(command)
    def called(**values: Any) -> None:
        made = {name: kind(**{field.name: values.pop(field.name) for field in dataclasses.fields(kind)}) for name, kind in bundles.items()}
        command(**values, **made)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called
