"""How `redrive run` and `redrive tick` end on a signal: soon, but not between a send and its result."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING

from orchestration.logs import event

if TYPE_CHECKING:
    from orchestration.loop.loop import Loop

log = logging.getLogger(__name__)

SUPERSEDED_EXIT = 3
"""How `redrive run` ends when another loop has taken over."""

# How long a loop that was told to end has for it, in seconds: a decide run takes longer, and needs not be waited for.
_GRACE = 2.0


def end_on_signals(loop: Loop) -> None:
    """Lets SIGTERM and Ctrl-C end the loop, and the process: within seconds, whatever it is doing, but for what it is sending.

    A loop may end anywhere, and the next one goes on from there; only what is sent and not written down would be sent again. The second
    signal doesn't wait for that either.
    """

    # a handler runs when the call returns that the main thread is in: one into librdkafka takes ten seconds where the broker is gone
    heard, written = socket.socketpair()
    written.setblocking(False)
    signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    # dbt's locks are left to this process's tracker, which would say so
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")
    threading.Thread(target=_end_on_signal, args=(loop, heard, written), name="signals", daemon=True).start()


def _end_on_signal(loop: Loop, heard: socket.socket, written: socket.socket) -> None:
    """Hears signals. written: the other end, which must stay open."""
    ends = False
    while written.fileno() >= 0:
        number = signal.Signals(heard.recv(1)[0])
        if number not in (signal.SIGTERM, signal.SIGINT):
            continue
        if ends:
            os._exit(128 + number)
        ends = True
        loop.stopping.set()
        threading.Thread(target=_end_in_time, args=(loop, number.name), name="end", daemon=True).start()


def _end_in_time(loop: Loop, why: str) -> None:
    """Ends the process if the loop does not get to it."""
    event(log, logging.INFO, "stop_requested", signal=why)
    time.sleep(_GRACE)
    if loop.sending.locked():
        event(log, logging.INFO, "stop_delayed", reason="the results of a send are being recorded")
        with loop.sending:
            pass
        time.sleep(_GRACE)
    with loop.sending:
        try:
            loop.finish()
        finally:
            os._exit(0 if loop.superseded_by is None else SUPERSEDED_EXIT)
