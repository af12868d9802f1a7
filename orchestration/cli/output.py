"""What is written for people and programs: all of it passes here, as much of it was written by others.

What comes in reports may be anybody's: escape sequences that move a terminal's cursor, line ends that forge lines of a log, marks that
turn the direction of text around. And an error's text may have a secret in it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.text import Text

from publisher import masked

# A line of a log is at most so long: the rest of a foreign text says nothing more.
LONGEST_LINE = 4_000

# Wider than any line: rich shortens what is wider than its console.
_UNBOUNDED = 1_000_000

_secrets: tuple[str, ...] = ()


def hide(secrets: Iterable[str]) -> None:
    """Keeps these out of all errors and log lines that are written from now on, instead of those that were kept out before."""
    global _secrets
    _secrets = tuple(secrets)


def redacted(text: str) -> str:
    """Text without a secret of the settings."""
    return masked(text, _secrets) if _secrets else text


def printable(text: str) -> str:
    """Text that tells a terminal nothing but letters and line ends."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in text)


def one_line(text: str, longest: int = LONGEST_LINE) -> str:
    """Text as a line of its own, without secrets: what would end the line, or tell a terminal something, is a blank or a mark there."""
    line = printable(re.sub(r"[\r\n\t\v\f]+", " ", redacted(text)))
    return line if len(line) <= longest else line[: longest - 1] + "…"


def as_json(value: Any) -> str:
    """JSON on one line. Letters stay as they are; what isn't printable is escaped, so that nothing is lost and a terminal hears nothing."""
    written = json.dumps(value, ensure_ascii=False)
    return written if written.isprintable() else "".join(letter if letter.isprintable() else _escaped(letter) for letter in written)


def _escaped(letter: str) -> str:
    code = ord(letter)
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xD800 + ((code - 0x10000) >> 10):04x}\\u{0xDC00 + ((code - 0x10000) & 0x3FF):04x}"


class SafeConsole(Console):
    """A console that shows nothing but letters, whatever is in the texts and tables that it is given. secretive: and no secrets."""

    def __init__(self, *, secretive: bool = False, **how: Any) -> None:
        super().__init__(**how)
        self._secretive = secretive

    def render_str(self, text: str, **how: Any) -> Text:
        """Makes text of a string: each cell, title and line passes here."""
        return super().render_str(printable(redacted(text) if self._secretive else text), **how)

    def render(self, renderable: Any, options: Any = None) -> Any:
        """Renders what is text already, and so does not pass `render_str`."""
        if isinstance(renderable, Text) and printable(renderable.plain) != renderable.plain:
            renderable = renderable.copy()
            renderable.plain = printable(renderable.plain)
        return super().render(renderable, options)


def console(width_of_a_pipe: int | None = _UNBOUNDED) -> Console:
    """Standard output, for people. A pipe or a file has no width: nothing is shortened or folded there, as its reader needs whole ids."""
    return SafeConsole(width=None if sys.stdout.isatty() else width_of_a_pipe, highlight=False)


def errors() -> Console:
    """Standard error, for people."""
    return SafeConsole(secretive=True, stderr=True, highlight=False, soft_wrap=True)
