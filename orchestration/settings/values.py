"""The kinds of values that settings have: Kafka properties with their secrets, paths, names, counts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, StringConstraints

from publisher import MASK, SecretText, is_secret, parts_of

_CONNECTION = re.compile(r"[a-z0-9_-]{1,60}")
_ADDRESS = re.compile(r"[a-z][a-z0-9]*(\+[a-z0-9]+)?://\S+")


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


class Addresses(dict[str, str]):
    """Addresses of databases by the name of the connection. Everything that would print them prints ``***``."""

    def __repr__(self) -> str:
        return repr(dict.fromkeys(self, MASK))

    __str__ = __repr__

    @property
    def secrets(self) -> list[str]:
        """The texts to mask."""
        found = [part for value in self.values() for part in parts_of(value)]
        passwords = (part.partition(":")[2] for part in found if ":" in part and "/" not in part)
        # of an address without a password, it is empty: it would be found between any two letters
        return [*found, *(password for password in passwords if password)]


def addresses(given: dict[str, str]) -> Addresses:
    """Checks the form of the addresses. Raises ValueError, which doesn't quote them."""
    for name, value in given.items():
        if not _CONNECTION.fullmatch(name):
            raise ValueError(f"{name!r} must be lower-case letters, digits, hyphens and underscores")
        if not _ADDRESS.fullmatch(value):
            raise ValueError(
                f"{name} must be an address: postgresql://USER:PASSWORD@HOST:PORT/DATABASE, or file: and the path of a file with it"
            )
    return Addresses(given)


def _all_masked(given: Mapping[str, str]) -> dict[str, str]:
    return dict.fromkeys(given, MASK)


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
Connections = Annotated[dict[str, _Property], AfterValidator(addresses), PlainSerializer(_all_masked, return_type=dict[str, str])]
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
# Names become parts of a transactional.id and of metric and file names: characters that Kafka allows in topic names are safe there.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,100}$")]
TopicOrNone = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{0,249}$")]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Size = Annotated[int, Field(ge=1024, le=2**40)]
