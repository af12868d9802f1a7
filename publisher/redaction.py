"""Which Kafka properties are secret, and how their values are kept out of texts. Imports neither Arrow nor the Kafka client (0.5 s)."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

MASK: Final = "***"
SECRET_NAME: Final = (
    r"password|passwd|secret|token(?![.]endpoint)|jaas|credential|user[.]info|oauthbearer[.]config|ssl[.]key[.]pem|keystore[.]key$|private"
    r"|api[.]key|access[.]?key|assertion(?![.](?:algorithm|file))"
)
"""Matches the name of a secret property, in upper or lower case. `key` alone would hide too much: ssl.key.location is a path. The
options in profiles.yml by which Spark redacts have the same expression: a test compares them."""

_SECRET_NAME: Final = re.compile(SECRET_NAME, re.IGNORECASE)
_SECRET_VALUE: Final = re.compile(r"://[^/@\s]*:[^/@\s]*@|-----BEGIN [A-Z ]*PRIVATE KEY")
# A client may quote a part of a value, from where it can't parse it. Any part of a secret of at least this many characters is masked, too.
_FRAGMENT: Final = 8
# Only the options of a login configuration are secret. Its other words occur in many Java errors, and stay readable.
_OPTION: Final = re.compile(r'=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))')
_LOGIN_MODULE: Final = re.compile(r"\s*[\w.$]+\s+(?:required|requisite|sufficient|optional)\s", re.IGNORECASE)
# Long enough for any reason, short enough for a column that people read.
_LONGEST: Final = 500


class SecretText(str):
    """A value that is secret whatever its name: one that was read from a file."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(MASK)


def is_secret(name: str, value: str) -> bool:
    """Whether a property must not be shown: by its name, by the form of its value, or because it came from a file."""
    return isinstance(value, SecretText) or bool(_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))


def secrets_of(properties: Mapping[str, str]) -> list[str]:
    """The texts to mask for some properties: the values of secret properties, or only their secret parts."""
    return [part for name, value in properties.items() if is_secret(name, value) for part in parts_of(value) if part]


def parts_of(value: str) -> Iterator[str]:
    """The secret parts of a value: of a login configuration its options, of a PEM text its lines, else the value and its user name."""
    if _LOGIN_MODULE.match(value):
        for quoted, plain in _OPTION.findall(value):
            yield quoted or plain
            yield re.sub(r"\\(.)", r"\1", quoted)
    elif "-----BEGIN" in value:
        yield value
        yield from (line for line in re.split(r"\s*(?:\n|\\n)\s*", value) if not line.startswith("-----"))
    else:
        yield value
        yield from re.findall(r"://([^/@\s]*:[^/@\s]*)@", value)


def masked(text: str, secrets: Iterable[str]) -> str:
    """`text` without these secrets, and without any part of one that has eight or more characters."""
    # The longest first: a secret may be part of another.
    known = sorted(set(secrets), key=len, reverse=True)
    for secret in known:
        text = text.replace(secret, MASK)
    windows = {secret[start : start + _FRAGMENT] for secret in known for start in range(len(secret) - _FRAGMENT + 1)}
    starts = [start for start in range(len(text) - _FRAGMENT + 1) if text[start : start + _FRAGMENT] in windows] if windows else []
    shown, end = "", 0
    for start in starts:
        if start > end or not end:
            shown += text[end:start] + MASK
        end = start + _FRAGMENT
    return shown + text[end:]


def redact(text: str, kafka: Mapping[str, str]) -> str:
    """`text` without the secrets of `kafka`, on one line, at most 500 characters long."""
    text = " ".join(masked(text, secrets_of(kafka)).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
