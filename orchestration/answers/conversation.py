"""What a command and a running loop send each other: one question and one answer on each connection, pickled.

Unpickling data of another user could run that user's code. So the socket is in a directory that only its owner may enter, and both sides
ask the operating system who is at the other end.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

Subject = Literal["dead_letters", "rulebook", "tables"]
"""What a question is about: an object of DeadLetters, Rulebook or Tables, of which one method is called."""

QUESTION_SECONDS = 30.0
"""How long a question may take, waiting for its turn included."""

MOST_ROWS = 10_000
MOST_BYTES = 64_000_000
"""The most that is read for one question."""


@dataclass(frozen=True)
class Question:
    """The call of a method. version, project: those of the command that asks. A loop with others declines the question."""

    version: str
    project: Path
    subject: Subject
    method: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]


@dataclass(frozen=True)
class Answered:
    """The value that the method returned."""

    value: Any


@dataclass(frozen=True)
class Failed:
    """The error that the method raised: one whose text says what to do."""

    error: Exception


@dataclass(frozen=True)
class Declined:
    """Why the loop doesn't answer this question. The command then starts Spark and answers it itself."""

    why: str


Answer = Answered | Failed | Declined


@cache
def program_version() -> str:
    """The version of this program."""
    try:
        return version("redrive")
    except PackageNotFoundError:
        return ""


def directory_of(home: Path) -> Path:
    """The directory of a home's sockets, one for each generation of the loop: `7.sock`."""
    return home / "answers"


def generation_of(path: Path) -> int:
    """The generation of the loop that answers at a socket; 0 for a file of another name."""
    return int(path.stem) if path.stem.isdigit() else 0


@contextlib.contextmanager
def reachable(path: Path) -> Iterator[str]:
    """A name for the socket, valid inside the context, that keeps to the operating system's limit of about a hundred bytes."""
    if len(os.fsencode(path)) < 100:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def is_mine(connection: Connection) -> bool:
    """Whether this user is at the other end. If the operating system can't tell, only the directory's permissions protect the socket."""
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        if not hasattr(socket, "SO_PEERCRED"):
            return True
        _, user, _ = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return bool(user == os.geteuid())
