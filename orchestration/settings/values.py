"""The kinds of values that settings have: Kafka properties with their secrets, paths, names, counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, StringConstraints

from publisher import MASK, SecretText, is_secret


class SettingsError(Exception):
    """The settings can't be used: one line for each problem, with its place and what is allowed there."""

    exit_code: ClassVar[int] = 2

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems: tuple[str, ...] = tuple(problems)
        super().__init__("\n".join(self.problems))


class Properties(dict[str, str]):
    """Kafka properties by name. Everything that would print them prints the secrets as ``***``."""

    def __repr__(self) -> str:
        return repr(redacted(self))

    __str__ = __repr__


def redacted(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties for a log: a value that is secret by its name or its form is ``***``."""
    return {name: MASK if is_secret(name, value) else value for name, value in properties.items()}


def _property_value(value: object) -> str:
    """A property as text, as both clients need it. TOML may have made a number or a bool of it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        raise ValueError("must be text, a number, true or false")
    if not value.startswith("file:"):
        return value
    path = Path(value.removeprefix("file:")).expanduser()
    try:
        return SecretText(path.read_text(encoding="utf-8").rstrip("\r\n"))
    except OSError as error:
        raise ValueError(f"names the file {path}, which can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"names the file {path}, which is not UTF-8 text") from None


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


# Validated as Any, so that a SecretText stays one.
_Property = Annotated[Any, BeforeValidator(_property_value)]
KafkaProperties = Annotated[dict[str, _Property], AfterValidator(Properties), PlainSerializer(redacted, return_type=dict[str, str])]
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
# Names become parts of a transactional.id and of metric and file names: characters that Kafka allows in topic names are safe there.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,100}$")]
TopicOrNone = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{0,249}$")]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Size = Annotated[int, Field(ge=1024, le=2**40)]
