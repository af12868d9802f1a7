"""How `redrive run` ends on a signal: soon, whatever the loop is doing, but not between a send and its result."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import logging, sys, threading, time
from confluent_kafka.admin import AdminClient
from orchestration.cli import ending
logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
ending._GRACE = 0.2

class Loop:
    stopping, sending, superseded_by = threading.Event(), threading.Lock(), SUPERSEDED
    def finish(self):
        logging.info("goodbye")

loop = Loop()
ending.end_on_signals(loop)
DOING
"""

READY = "print('ready', flush=True)"

DOING = {
    "a decide run": f"{READY}\ntime.sleep(1000)",
    # which a signal does not interrupt
    "a question to Kafka": f"{READY}\nAdminClient({{'bootstrap.servers': '127.0.0.1:1', 'log_level': 0}}).list_topics(timeout=1000)",
    "a send": f"with loop.sending:\n    {READY}\n    loop.stopping.wait()\n    time.sleep(1)\n    logging.info('sent')\ntime.sleep(1000)",
    "a send of the timed lane": "from types import SimpleNamespace as S\ndef end():\n    time.sleep(1)\n    logging.info('recorded')\n"
    f"loop.steps = S(publish=S(hand_over=S(end=end)))\n{READY}\ntime.sleep(1000)",
    "a send that hangs": f"with loop.sending:\n    {READY}\n    time.sleep(1000)",
    "nothing": f"{READY}\nloop.stopping.wait()\nloop.finish()",
}


@pytest.mark.parametrize(
    ("doing", "superseded", "signals", "code", "said"),
    [
        ("a decide run", None, [signal.SIGTERM], 0, ["stop_requested signal=SIGTERM", "goodbye"]),
        ("a decide run", None, [signal.SIGINT], 0, ["stop_requested signal=SIGINT", "goodbye"]),
        ("a question to Kafka", None, [signal.SIGTERM], 0, ["stop_requested signal=SIGTERM", "goodbye"]),
        ("a decide run", 8, [signal.SIGTERM], 3, ["stop_requested signal=SIGTERM", "goodbye"]),
        (
            "a send",
            None,
            [signal.SIGTERM],
            0,
            ["stop_requested signal=SIGTERM", 'stop_delayed reason="the results of a send are being recorded"', "sent", "goodbye"],
        ),
        ("a send of the timed lane", None, [signal.SIGTERM], 0, ["stop_requested signal=SIGTERM", "recorded", "goodbye"]),
        ("a send that hangs", None, [signal.SIGTERM, signal.SIGTERM], 128 + signal.SIGTERM, None),
        ("nothing", None, [signal.SIGTERM], 0, ["goodbye"]),
    ],
)
def test_a_loop_ends_when_it_is_told_to(
    doing: str, superseded: int | None, signals: list[signal.Signals], code: int, said: list[str] | None
) -> None:
    script = SCRIPT.replace("SUPERSEDED", str(superseded)).replace("DOING", DOING[doing])
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signals[0])
    for number in signals[1:]:
        # the first is executed by now
        assert process.stderr is not None
        assert process.stderr.readline() == "stop_requested signal=SIGTERM\n"
        process.send_signal(number)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == code, error
    if said is not None:
        # where the loop itself ends, it may do so before the other line is out
        assert [line for line in error.splitlines() if doing != "nothing" or line == "goodbye"] == said
