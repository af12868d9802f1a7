"""How `redrive run` and `redrive tick` end on a signal: soon, but not between a send and its result."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from orchestration.logs import event

if TYPE_CHECKING:
    from orchestration.loop.loop import Loop

log = logging.getLogger(__name__)

SUPERSEDED_EXIT = 3
"""The exit code of `redrive run` when another loop has taken over."""

# How long a loop has to end by itself after a signal, in seconds. A decide run may take longer; it is not waited for.
_GRACE = 2.0

# How long the timed lane has to record what it has sent, in seconds.
_LANE_PATIENCE = 20.0


def end_on_signals(loop: Loop) -> None:
    """Lets SIGTERM and Ctrl-C end the loop and the process within seconds, whatever it is doing, except while it sends.

    A loop may end anywhere, and the next one goes on from there; but it would have to read back what was sent without a result, so the
    process waits until results are appended. A second signal ends it at once.
    """

    # a thread, as a Python handler only runs when the main thread's current call returns, and a call into librdkafka may take ten seconds
    heard, written = socket.socketpair()
    written.setblocking(False)
    signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    # the resource tracker would warn about dbt's locks, which are left when the process ends this way
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")
    threading.Thread(target=_end_on_signal, args=(loop, heard, written), name="signals", daemon=True).start()


def _end_on_signal(loop: Loop, heard: socket.socket, written: socket.socket) -> None:
    """Waits for signals. written: the other end of the socket pair. Without this reference it would be closed, and no signal arrive."""
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


def _end_lane(loop: Loop) -> None:
    """Ends the timed lane, and waits until what it has sent is recorded, for at most _LANE_PATIENCE: an append may hang."""

    def end() -> None:
        # a loop that has not taken over yet has no steps, and nothing was sent
        with suppress(Exception):
            loop.steps.publish.hand_over.end()

    ending = threading.Thread(target=end, name="end-lane", daemon=True)
    ending.start()
    ending.join(_LANE_PATIENCE)


def _end_in_time(loop: Loop, why: str) -> None:
    """Ends the process if the loop has not ended in time."""
    event(log, logging.INFO, "stop_requested", signal=why)
    time.sleep(_GRACE)
    _end_lane(loop)
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
