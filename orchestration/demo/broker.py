"""A real Kafka broker on this machine, for the demo and the tests: one process, no Docker, no Maven.

Apache Kafka in KRaft mode, broker and controller in one. The jars come from Maven Central the first time (about 45 MB)
and stay in the cache directory; everything else lives in the broker's own directory::

    <directory>/broker.json    the port, so that the next start is found at the same address
    <directory>/broker.log     output of the process (warnings and errors)
    <directory>/data/          topics and metadata; deleting it resets the broker

kill -9 of the broker ends it without a shutdown. If the Python process that started it is killed, the broker is shut down, or killed if
that takes longer than 10 s. After either, a start on the same
directory works, and finds everything that was acknowledged before.

Whether a process is alive is never read from a file, but from locks, which the kernel releases when a process ends:

- ``owner.lock`` is held by the Python process that runs the broker of the directory,
- ``broker.lock`` is inherited by the broker, so it is free only when the broker is gone too.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Final, Self

from orchestration.demo.kafka_process import (
    HOST,
    KAFKA_VERSION,
    NODE_ID,
    BrokerError,
    find_java,
    format_storage,
    free_port,
    is_free,
    java_command,
    kafka_jars,
    write_properties,
)
from orchestration.files import write_atomically

_LOG_LINES: Final = 15
_LOG_BYTES: Final = 4 * 1024 * 1024
# A broker whose Python parent was killed is given this long to close its logs.
_ORPHAN_SECONDS: Final = 10

# What the broker is started through. It becomes the broker (same pid, so that its exit code and its end are seen
# directly) after it has forked a child that waits for the end of its standard input: a pipe whose other end only our
# process holds, so it ends whenever that process does, however it died. PR_SET_PDEATHSIG would be shorter, but is Linux
# only, and fires when the *thread* that started the broker ends, which need not be the main one. Sharing our process
# group would not do either: Ctrl-C would stop the broker while the loop still finishes its step.
_LAUNCHER: Final = """
import os, signal, sys, time
lock, patience, command = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
broker = os.getpid()
if os.fork() == 0:
    os.close(lock)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    deadline = time.monotonic() + patience
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if os.getppid() == broker:
            os.kill(broker, sign)
        while os.getppid() == broker and time.monotonic() < deadline:
            time.sleep(0.05)
    os._exit(0)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.execv(command[0], command)
"""


@dataclass(frozen=True)
class BrokerSettings:
    """The settings of a broker.

    directory: where its state is; created if it is missing.
    port: where clients reach it, on the loopback address; ``None``: the one it had before, or else a free one.
    heap: the Java heap, as ``-Xmx`` takes it.
    start_seconds: how long a start may take. stop_seconds: how long a graceful stop may take before the broker is killed.
    properties: Kafka broker properties that override the ones chosen here. listeners: further ones, as in Kafka's property of this name.
    """

    directory: Path
    port: int | None = None
    heap: str = "512m"
    start_seconds: float = 60.0
    stop_seconds: float = 20.0
    properties: Mapping[str, str] = field(default_factory=dict)
    listeners: Sequence[str] = ()


class Broker:
    """One broker: ``with Broker(BrokerSettings(directory)) as broker: ... broker.bootstrap_servers``.

    ``start`` after ``stop`` or ``kill`` starts it again, at the same port with the same data. All methods may be called
    in any state, from any thread, one at a time.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._owner_lock: IO[str] | None = None
        self._port: int | None = None

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for clients. Raises BrokerError before the first start."""
        if self._port is None:
            raise BrokerError("the broker has no address yet: it was not started")
        return f"{HOST}:{self._port}"

    @property
    def log_path(self) -> Path:
        return self.settings.directory / "broker.log"

    @property
    def pid(self) -> int | None:
        """The process id of the Java process while it runs, else None."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process (negative: the signal); None while it runs and before the first start."""
        return None if self._process is None else self._process.poll()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the broker and returns when it serves clients; does nothing while it runs.

        Raises BrokerError: Java missing or too old, port taken, directory in use by another broker, download failed,
        process ended early, not up within ``start_seconds``.
        """
        if self.pid is not None:
            return
        java = find_java()
        jars = kafka_jars()
        directory = self.settings.directory.absolute()
        directory.mkdir(parents=True, exist_ok=True)
        self._release()
        self._owner_lock = _lock_owner(directory)
        try:
            with _lock_broker(directory) as broker_lock:
                self._port = self._choose_port(directory)
                properties = write_properties(directory, self._port, self.settings.properties, self.settings.listeners)
                format_storage(java, jars, directory, properties)
                self._process = self._launch(java, jars, directory, properties, broker_lock)
            self._wait_until_up()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Lets the broker close its logs and end; kills it when that takes longer than ``stop_seconds``."""
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGCONT)  # a stopped process would not receive the next signal
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self.settings.stop_seconds)
        self.kill()

    def kill(self) -> None:
        """kill -9: the broker is gone at once. What it had acknowledged is still there at the next start."""
        process = self._process
        if process is not None:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdin is not None and not process.stdin.closed:
                process.stdin.close()
        self._release()

    def _release(self) -> None:
        if self._owner_lock is not None:
            self._owner_lock.close()
            self._owner_lock = None

    def _choose_port(self, directory: Path) -> int:
        wanted = self.settings.port
        # `0` counts as not given
        port = wanted or self._port or remembered_port(directory)
        if port is None:
            port = free_port()
        elif not is_free(port):
            had = "" if wanted else " (the one this broker had before)"
            raise BrokerError(f"port {port}{had} on {HOST} is taken by another program: end that program, or choose another port")
        write_atomically(directory / "broker.json", json.dumps({"port": port}) + "\n")
        return port

    def _launch(self, java: Path, jars: Sequence[Path], directory: Path, properties: Path, lock: int) -> subprocess.Popen[bytes]:
        if self.log_path.exists() and self.log_path.stat().st_size > _LOG_BYTES:
            self.log_path.replace(self.log_path.with_suffix(".log.1"))
        command = [
            *(sys.executable, "-I", "-S", "-c", _LAUNCHER, str(lock), str(_ORPHAN_SECONDS)),
            *java_command(java, jars, self.settings.heap, "kafka.Kafka", str(properties)),
        ]
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(lock,),
                start_new_session=True,
            )

    def _wait_until_up(self) -> None:
        # Imported here so that `redrive broker --help` and a check for Java do not load librdkafka.
        from confluent_kafka import KafkaException

        from orchestration.kafka import clients

        assert self._process is not None
        deadline = time.monotonic() + self.settings.start_seconds
        while not _accepts(self._port or 0):
            self._check_alive(deadline)
            time.sleep(0.05)
        admin = clients.admin({"bootstrap.servers": self.bootstrap_servers, "reconnect.backoff.max.ms": "200"})
        while True:
            with contextlib.suppress(KafkaException):
                # The broker is listed only when the controller has registered it; from then on topics can be created.
                if NODE_ID in admin.list_topics(timeout=1).brokers:
                    return
            self._check_alive(deadline)
            time.sleep(0.05)

    def _check_alive(self, deadline: float) -> None:
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            raise BrokerError(f"the broker ended with exit code {code} while starting; {_last_lines(self.log_path)}")
        if time.monotonic() > deadline:
            raise BrokerError(f"the broker did not come up within {self.settings.start_seconds:g} s; {_last_lines(self.log_path)}")


def serve(directory: Path, port: int | None = None) -> None:
    """Runs the broker of ``directory`` in the foreground until Ctrl-C or SIGTERM; prints how to reach it.

    Only for the main thread, since it takes over both signals while the broker runs. Raises BrokerError like
    Broker.start, and when the broker ends by itself; KeyboardInterrupt before it is up.
    """
    stopped = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stopped.set()

    with Broker(BrokerSettings(directory, port=port)) as broker:
        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            print(f"Kafka {KAFKA_VERSION} listens on {broker.bootstrap_servers}; its state is in {directory}")
            print(f"  export REDRIVE_KAFKA__BOOTSTRAP_SERVERS={broker.bootstrap_servers}")
            print("Ctrl-C stops it; the next start finds the same topics at the same address.", flush=True)
            while not stopped.wait(0.5):
                if broker.exit_code is not None:
                    raise BrokerError(f"the broker ended by itself with exit code {broker.exit_code}; {_last_lines(broker.log_path)}")
            broker.stop()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def remembered_port(directory: Path) -> int | None:
    """The port that the broker of this directory had last, whether it runs or not; None when there was none."""
    try:
        port = json.loads((directory / "broker.json").read_text())["port"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return port if isinstance(port, int) and 0 < port < 65_536 else None


def _lock_owner(directory: Path) -> IO[str]:
    lock = (directory / "owner.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        port = remembered_port(directory)
        where = f" (it listens on {HOST}:{port})" if port else ""
        raise BrokerError(
            f"another process runs the broker of {directory}{where}: use that one, end it, or choose another directory"
        ) from None
    return lock


@contextlib.contextmanager
def _lock_broker(directory: Path) -> Iterator[int]:
    """The lock that the broker inherits. Waits for a broker whose Python parent has just died."""
    deadline = time.monotonic() + _ORPHAN_SECONDS + 5
    with (directory / "broker.lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise BrokerError(
                        f"a broker on {directory} is still running although the process that started it has ended: "
                        "end that Java process (its command line names this directory)"
                    ) from None
                time.sleep(0.05)
        yield lock.fileno()


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _last_lines(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    except OSError:
        lines = []
    if not lines:
        return f"{log} is empty"
    return f"the last lines of {log}:\n" + "\n".join(f"  {line}" for line in lines)
