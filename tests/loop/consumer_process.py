"""A consumer in its own process, to be killed: `python -m tests.loop.consumer_process '{"kafka": {...}, "domain": "d", "log": "file"}'`.

Records are numbers, with the key of their sequence. Those of some keys fail twice now and then. Each record that is processed becomes a
line of the file that all consumers write to, in one piece: the order of lines is the order of processing. `ignores`: `epochs`, to break the
rule by which a record that was sent before the last failure waits.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from confluent_kafka import Message

from reporter import ReportingConsumer, Topics, header
from reporter.holds import Holds, Sequence


def fails(key: str, number: int) -> int:
    """How often a record fails before it is processed: of one key in ten, some records do so twice."""
    return 2 if int(key.removeprefix("k")) % 10 == 0 and number % 20 == 7 else 0


def main() -> None:
    """Consumes until SIGTERM."""
    told = json.loads(sys.argv[1])
    domain = told["domain"]
    file = os.open(told["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    if told.get("ignores") == "epochs":
        may_process = Holds.may_process

        def without_epochs(self: Holds, sequence: Sequence, epoch: str | None, *, is_retry: bool) -> bool:
            return is_retry or may_process(self, sequence, epoch, is_retry=is_retry)

        Holds.may_process = without_epochs  # type: ignore[method-assign]  # the sabotage

    def process(record: Message) -> None:
        key, number = bytes(record.key() or b"").decode(), int(record.value() or b"0")
        if int(header(record, "redrive-attempt") or "1") <= fails(key, number):
            raise TimeoutError("not yet")
        os.write(file, f"{key} {number}\n".encode())

    topics = Topics({f"{domain}.orders": f"{domain}.orders-billing-retry"}, f"{domain}.reports", f"{domain}.sequences")
    # a consumer that was killed is missed soon
    ReportingConsumer({**told["kafka"], "session.timeout.ms": "6000"}, "billing", topics).run(process, stop)


if __name__ == "__main__":
    main()
