"""What stands around the simulated loop: a producer, a consumer that fails, operators, rules that change, and a clock that is set."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka._model import IsolationLevel
from confluent_kafka.admin import AdminClient

from orchestration.clock import EPOCH
from orchestration.loop.loop import Loop
from orchestration.operators.commands import CommandRequest
from orchestration.operators.lists import Target
from orchestration.operators.sending import records
from orchestration.tables.rows import collected
from orchestration.tables.spark import start_session
from tests.sessions import stop_session
from tests.simulation.effects import Crash, Effects
from tests.simulation.fates import LATE, POLICIES, Fate, chance, fate, pick
from tests.simulation.history import Came, Event, Failed, Ordered
from tests.simulation.installation import (
    COMMANDS,
    GROUP,
    PARTITIONS,
    REPORTS,
    Ends,
    Place,
    change_rules,
    make_settings,
    make_topics,
    retries_of,
)

# After which part of the steps no more messages are written, a missing topic is made, and the rules change.
_WRITES_UNTIL = 0.7
_CREATED_AT = 0.3
_RULES_CHANGE_AT = 0.5

# The most ticks in which what is left is sent: the longest ladder takes a minute and a half, and a tick some seconds.
_ROUNDS = 40

_COMMITTED, _WRITTEN = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


def _ms(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


@dataclass
class World:
    """One simulation: `step` until all steps are done, then `drain`; `history` is what the model judges."""

    kafka: dict[str, str]
    home: Path
    project: Path
    effects: Effects
    seed: int
    messages: int
    steps: int
    history: dict[int, list[Event]] = field(default_factory=lambda: defaultdict(list))
    fates: list[Fate] = field(default_factory=list)
    loops: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    """How many records came, by kind, and how many orders were given, by what."""
    _step: int = 0
    _lane_turns: int = 0
    _is_changed: bool = False

    def __post_init__(self) -> None:
        stop_session()
        make_topics(self.kafka, *(name for topic in POLICIES if topic != LATE for name in (retries_of(topic), f"{topic}.dlq")))
        make_topics(self.kafka, f"{LATE}.dlq", REPORTS, f"{REPORTS}.dlq", COMMANDS)
        self._admin = AdminClient({**self.kafka})
        self._ends = Ends(self.kafka)
        self._producer = Producer({**self.kafka, "message.max.bytes": 4_000_000, "enable.idempotence": True})
        self._consumer = Consumer({**self.kafka, **_READS})
        self._read_upto: dict[Place, int] = {}
        self._attempts: Counter[int] = Counter()
        self._assign()
        self.settings = make_settings(self.kafka, self.home, self.project)
        self.effects.beside = self._send_in_lane

    # ---------- the course of a simulation

    def start(self) -> None:
        """Starts the first loop, which makes the tables; it may crash, too."""
        start_session(self.settings)
        try:
            self._begin_loop()
        except Crash:
            self._restart()

    def step(self) -> None:
        """Some seconds, in which all around the loop goes on, then one tick, which may crash."""
        self._step += 1
        if self._step <= self.steps * _WRITES_UNTIL:
            self._write(-(-self.messages // int(self.steps * _WRITES_UNTIL)))
        if self._step == max(1, int(self.steps * _CREATED_AT)):
            make_topics(self.kafka, retries_of(LATE))
            self._assign()
        if self._step == max(1, int(self.steps * _RULES_CHANGE_AT)):
            change_rules(self.settings)
            # what is reported from now on is decided after the rules are loaded
            self._is_changed = True
        if chance(self.seed, "set", self._step) < 0.15:
            self.effects.time.wrong = pick((timedelta(), timedelta(hours=-3), timedelta(minutes=4)), self.seed, "wrong", self._step)
        if self._step % 5 == 0:
            self._order(pick(("redrive", "send_now", "cancel", "discard"), self.seed, "order", self._step))
        self._pass(4)
        self._tick()

    def drain(self) -> None:
        """Nothing goes wrong any more: runs ticks until nothing waits, but not for ever."""
        self.effects.end()
        self.effects.time.wrong = timedelta()
        quiet = 0
        for _ in range(_ROUNDS):
            if quiet == 3:
                return
            self._pass(12)
            is_busy = self.loop.tick().did_something
            is_busy = self._consume() > 0 or is_busy
            quiet = 0 if is_busy or self.loop.waiting() else quiet + 1

    def close(self) -> None:
        """Ends the loop in order."""
        self.loop.close()
        self._consumer.close()
        self._producer.flush(10)

    # ---------- the loop

    def _tick(self) -> None:
        try:
            if chance(self.seed, "ends", self._step) < 0.05:
                self.loop.close()
                self._begin_loop()
            self.loop.tick()
        except Crash:
            self._restart()
        self._consume()

    def _restart(self) -> None:
        while True:
            older = self.loop
            # what it has sent is seen by its clock, which may be ahead of the next loop's
            self._await_markers()
            self._consume()
            older._presence.end()
            if older._serving is not None:
                older._serving.close()
            # a while passes before it is noticed
            self.effects.time.elapsed += timedelta(seconds=10 * chance(self.seed, "noticed", self.loops))
            try:
                self._begin_loop()
            except Crash:
                continue
            return

    def _begin_loop(self) -> None:
        self.loops += 1
        ahead = pick((0.0, 5.0, 60.0, 60.0), self.seed, "ahead", self.loops)
        self.loop = Loop(self.settings.model_copy(update={"look_ahead_seconds": ahead}))
        before = self.effects.time.elapsed
        self.loop.start()
        # the clock of the loop before may have been ahead: a failure can't be later than its report is taken in, perhaps by this start
        earliest = _ms(self.loop.clock.now() - (self.effects.time.elapsed - before))
        for events in self.history.values():
            if isinstance(last := events[-1], Failed) and last.at_ms > earliest:
                events[-1] = replace(last, at_ms=earliest)

    def _send_in_lane(self) -> None:
        """What the threads of the timed lane would do by now."""
        if not self.loop._started:
            return
        lane = self.loop.lane
        while not lane._ended and lane._until_due() == 0:
            lane._send_next()
        self._lane_turns += 1
        # not each time: a crash may come after several sends that are not recorded
        if lane._attempt is None and chance(self.seed, "records", self._lane_turns) < 0.4:
            lane._record()

    def _pass(self, seconds: int) -> None:
        """Time passes, in steps of up to a second and a half."""
        for second in range(seconds):
            self.effects.time.elapsed += timedelta(seconds=0.5 + chance(self.seed, "passes", self._step, second))
            try:
                self._send_in_lane()
            except Crash:
                self._restart()
            self._consume()

    def _now_ms(self) -> int:
        return _ms(self.loop.clock.now())

    # ---------- producer and consumer

    def _write(self, count: int) -> None:
        for _ in range(min(count, self.messages - len(self.fates))):
            self.fates.append(one := fate(self.seed, len(self.fates)))
            self._report(one, (("own", b"\x00\xff"), ("trace", b"%d" % one.number)), (one.topic, one.number % PARTITIONS, one.number))
        self._producer.flush(30)

    def _report(self, one: Fate, headers: tuple[tuple[str, bytes], ...], place: tuple[str, int, int]) -> None:
        """Processes a message: reports the failure, if it fails; some failures are reported twice."""
        self._attempts[one.number] += 1
        attempt = self._attempts[one.number]
        error = one.error(attempt)
        if error is None:
            return
        now = self._now_ms()
        self.history[one.number].append(Failed(error, now, self._is_changed))
        stated = {
            "redrive-error-class": error.encode(),
            "redrive-error-message": b"attempt %d" % attempt,
            "redrive-original-topic": place[0].encode(),
            "redrive-original-partition": b"%d" % place[1],
            "redrive-original-offset": b"%d" % place[2],
            "redrive-consumer-group": GROUP.encode(),
            "redrive-failed-at": b"%d" % now,
        }
        for _ in range(1 + (chance(self.seed, "reported twice", one.number, attempt) < 0.05)):
            self._producer.produce(REPORTS, one.value, one.key, one.number % PARTITIONS, timestamp=now, headers=[*headers, *stated.items()])

    def _consume(self) -> int:
        """Takes what has come, and fails or processes it. Returns how many records."""
        came = sorted(self._new_records(), key=lambda record: (record.topic() or "", record.partition() or 0, record.offset() or 0))
        for record in came:
            self._take(record)
        self._producer.flush(30)
        self._commit()
        return len(came)

    def _take(self, record: Message) -> None:
        headers: tuple[tuple[str, bytes], ...] = tuple(record.headers() or ())  # type: ignore[arg-type]  # no header here is null
        told = dict(headers)
        one = self.fates[int(told["redrive-original-offset"])]
        is_dead = str(record.topic()).endswith(".dlq")
        self.seen["dead letters" if is_dead else "retries"] += 1
        own = tuple((name, value) for name, value in headers if not name.startswith(("redrive-", "dlq-")))
        expected = (("own", b"\x00\xff"), ("trace", b"%d" % one.number))
        is_intact = (record.key(), record.value(), own) == (one.key, one.value, expected)
        self.history[one.number].append(
            Came(
                is_dead,
                told["redrive-delivery"].decode(),
                int(told["redrive-attempt"]),
                int(told["redrive-due"]),
                self._now_ms(),
                is_intact,
            )
        )
        if not is_dead:
            self._report(one, headers, (str(record.topic()), int(record.partition() or 0), int(record.offset() or 0)))

    def _new_records(self) -> list[Message]:
        """All committed records that have come since the last call."""
        ends = self._ends.read(self._read_upto, _COMMITTED)
        found: list[Message] = []
        while any(self._read_upto[place] < end for place, end in ends.items()):
            for record in self._consumer.consume(500, 0.1):
                place = (str(record.topic()), int(record.partition() or 0))
                offset = int(record.offset() or 0)
                # an error is the end of a partition, which may come after a marker of a transaction
                if record.error() is None:
                    found.append(record)
                    offset += 1
                self._read_upto[place] = max(self._read_upto[place], offset)
        return found

    def _await_markers(self) -> None:
        """Waits until all that is committed can be read: brokers answer a commit before they mark its records in their partitions.

        Not for long: a worker that has died may have left a transaction open.
        """
        deadline = time.monotonic() + 2
        places = self._read_upto
        while self._ends.read(places, _COMMITTED) != self._ends.read(places, _WRITTEN) and time.monotonic() < deadline:
            time.sleep(0.02)

    def _commit(self) -> None:
        """Commits what was processed: then messages whose last retry did not fail count as recovered."""
        self._consumer.commit(offsets=[TopicPartition(*place, upto) for place, upto in self._read_upto.items()], asynchronous=False)

    def _assign(self) -> None:
        topics = [name for topic in POLICIES for name in (retries_of(topic), f"{topic}.dlq")]
        known = self._admin.list_topics(timeout=10).topics
        self._read_upto = {
            (name, number): self._read_upto.get((name, number), 0) for name in topics if name in known for number in range(PARTITIONS)
        }
        self._consumer.assign([TopicPartition(*place, upto) for place, upto in self._read_upto.items()])

    # ---------- operators, rules, topics

    def _order(self, what: str) -> None:
        """An operator selects every fifth message that the order is for, by what the tables say."""
        schema = self.loop.schema
        if what in ("send_now", "cancel"):
            found = f"select message_id, delivery_id, due_at, original_offset from {schema}.messages where state = 'waiting'"
        else:
            found = f"select message_id, delivery_id, due_at, original_offset from {schema}.stranded_messages where state = 'open'"
        targets = [
            (
                Target(row["message_id"], row["delivery_id"], _ms(row["due_at"])),
                int(row["original_offset"]),
            )
            for row in collected(self.loop.spark.sql(f"{found} order by message_id"))
            if chance(self.seed, "ordered", self._step, row["message_id"]) < 0.2
        ]
        if not targets:
            return
        for number, value in enumerate(records(CommandRequest(what, "simulated", "ada"), [target for target, _ in targets])):
            command = f"00000000-0000-4000-8000-{self._step:012d}"
            self._producer.produce(COMMANDS, value, command, 0, headers={"number": str(number)})
        self._producer.flush(30)
        for _, number in targets:
            self.seen[what] += 1
            self.history[number].append(Ordered(what))


_READS = {
    "group.id": GROUP,
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 10,
}
