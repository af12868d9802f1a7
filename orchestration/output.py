"""All output for people and programs passes through this module, as much of it contains foreign text.

Anybody may have written what reports contain: escape sequences that move a terminal's cursor, line ends that forge lines of a log, marks
that reverse the direction of text. And the text of an error may contain a secret.
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

# The longest line of a log, in characters.
LONGEST_LINE = 4_000

# Wider than any line: rich cuts lines at the width of its console.
_UNBOUNDED = 1_000_000

_secrets: tuple[str, ...] = ()


def hide(secrets: Iterable[str]) -> None:
    """Masks these secrets in all errors and log lines from now on. Replaces the ones that were set before."""
    global _secrets
    _secrets = tuple(secrets)


def redacted(text: str) -> str:
    """The text with the secrets of the settings masked."""
    return masked(text, _secrets) if _secrets else text


def printable(text: str) -> str:
    """The text with all characters replaced that are neither printable nor line ends."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in text)


def one_line(text: str, longest: int = LONGEST_LINE) -> str:
    """The text on one line, without secrets: line ends become blanks, other characters that aren't printable become a mark."""
    line = printable(re.sub(r"[\r\n\t\v\f]+", " ", redacted(text)))
    return line if len(line) <= longest else line[: longest - 1] + "…"


def as_json(value: Any) -> str:
    """JSON on one line. What isn't printable is escaped, so that nothing is lost and no control character reaches a terminal."""
    written = json.dumps(value, ensure_ascii=False)
    return written if written.isprintable() else "".join(letter if letter.isprintable() else _escaped(letter) for letter in written)


def _escaped(letter: str) -> str:
    code = ord(letter)
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xD800 + ((code - 0x10000) >> 10):04x}\\u{0xDC00 + ((code - 0x10000) & 0x3FF):04x}"


class SafeConsole(Console):
    """A console that replaces what isn't printable in all texts and tables. secretive: masks secrets, too."""

    def __init__(self, *, secretive: bool = False, **how: Any) -> None:
        super().__init__(**how)
        self._secretive = secretive

    def render_str(self, text: str, **how: Any) -> Text:
        """Makes text of a string: each cell, title and line passes through this method."""
        return super().render_str(printable(redacted(text) if self._secretive else text), **how)

    def render(self, renderable: Any, options: Any = None) -> Any:
        """Cleans what is a Text already, and so does not pass through `render_str`."""
        if isinstance(renderable, Text) and printable(renderable.plain) != renderable.plain:
            renderable = renderable.copy()
            renderable.plain = printable(renderable.plain)
        return super().render(renderable, options)


def console(width_of_a_pipe: int | None = _UNBOUNDED) -> Console:
    """Standard output, for people. In a pipe or a file nothing is cut or folded, as its reader needs whole ids.

    width_of_a_pipe: another width there; None: 80 columns, or COLUMNS.
    """
    return SafeConsole(width=None if sys.stdout.isatty() else width_of_a_pipe, highlight=False)


def errors() -> Console:
    """Standard error, for people."""
    return SafeConsole(secretive=True, stderr=True, highlight=False, soft_wrap=True)
