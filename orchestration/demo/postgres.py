"""A PostgreSQL server of its own, for the demo, the tests and the benchmarks: made in a directory, and gone with it.

Needs the server's programs: Debian's package `postgresql`, which puts them below /usr/lib/postgresql.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

_STARTS_WITHIN = 30.0


class PostgresError(Exception):
    """The server can't be started."""


def programs() -> Path | None:
    """The directory of the server's programs; None if it is not installed."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3].split(".")[0]))
    return versions[-1].parent if versions else None


class Postgres:
    """A server on a free port of this machine, with a database `shop`. Started by root, it runs as the user `postgres`."""

    def __init__(self) -> None:
        self._user = "postgres" if os.geteuid() == 0 else None
        self._programs = programs()
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]

    @property
    def address(self) -> str:
        """The address of the database, as the settings have it."""
        return f"postgresql://shop@127.0.0.1:{self.port}/shop"

    def __enter__(self) -> Self:
        if self._programs is None:
            raise PostgresError("PostgreSQL is not installed: on Debian, apt-get install postgresql")
        self._directory = Path(tempfile.mkdtemp(prefix="redrive-postgres-"))
        if self._user:
            os.chown(self._directory, pwd.getpwnam(self._user).pw_uid, -1)
        data = self._directory / "data"
        try:
            self._run("initdb", "-D", str(data), "-U", "shop", "--auth=trust", "--encoding=UTF8", "--no-sync")
            self.start()
            self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "shop", "shop")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def start(self) -> None:
        """Starts the server, and waits until it answers. Raises PostgresError."""
        assert self._directory is not None
        assert self._programs is not None
        options = ["-h", "127.0.0.1", "-p", str(self.port), "-c", "unix_socket_directories=", "-c", "fsync=off"]
        log = (self._directory / "log").open("ab")
        self._process = subprocess.Popen(
            [self._programs / "postgres", "-D", self._directory / "data", *options],
            user=self._user, stdout=log, stderr=log, cwd=self._directory, start_new_session=True,
        )  # fmt: skip
        deadline = time.monotonic() + _STARTS_WITHIN
        while True:
            try:
                self._run("pg_isready", "-h", "127.0.0.1", "-p", str(self.port))
                return
            except PostgresError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise PostgresError((self._directory / "log").read_text(errors="replace")[-2000:]) from None
                time.sleep(0.1)

    def stop(self) -> None:
        """Stops the server at once; what was committed stays."""
        if self._process is not None and self._process.poll() is None:
            self.signal(signal.SIGCONT)
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(20)
        self._process = None

    def signal(self, number: int) -> None:
        """Sends a signal to all processes of the server, for a test. Each has a process group of its own."""
        if self._process is None:
            return
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                process, parent = int(path.parent.name), int(path.read_text().rpartition(")")[2].split()[1])
                if self._process.pid in (process, parent):
                    os.kill(process, number)

    def _run(self, program: str, *arguments: str) -> None:
        assert self._programs is not None
        done = subprocess.run(
            [self._programs / program, *arguments], user=self._user, capture_output=True, cwd=self._directory, text=True, errors="replace"
        )
        if done.returncode != 0:
            raise PostgresError(f"{program}: {done.stderr.strip() or done.stdout.strip()}")
