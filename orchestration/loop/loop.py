"""The loop: intake, fold, publish, strictly one after another; between them it sleeps until something is due or has come.

No retry rule is here: what is decided, and why, is SQL. What is here is the order of steps that makes it safe: an input is in a ledger
before it is decided, a decision is committed before it is sent, and a result is committed before the floor moves over it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql.types import StructType

from orchestration.cli.output import redacted
from orchestration.clock import LoopClock, literal
from orchestration.kafka.cluster import Cluster, ClusterError
from orchestration.kafka.json_topics import Outlet, OutletError
from orchestration.kafka.topics import TopicMaker
from orchestration.loop.announce import Announcer
from orchestration.loop.commands import ISSUED_AT_ONCE, Commands, issued_in
from orchestration.loop.completeness import Completeness
from orchestration.loop.consumer_progress import Consumers, Place
from orchestration.loop.gates import Gates
from orchestration.loop.intake import COMMANDS, Intake
from orchestration.loop.metrics import Metrics, Turn, error_name
from orchestration.loop.presence import Presence
from orchestration.loop.publish import HORIZON, Due, Published, PublishStep, ResultsLostError, Stop, Unrecorded, UnrecordedError, Window
from orchestration.loop.status import Status, text, write_status
from orchestration.rules.routing import is_source
from orchestration.rules.seeds import SeedError, Seeds, read_seeds
from orchestration.settings import Settings
from orchestration.tables import synthetic_events
from orchestration.tables.catalog import move_tables
from orchestration.tables.dbt import Dbt, DbtError
from orchestration.tables.ledgers import AppendError, Ledgers, TakenOverError
from orchestration.tables.rows import collected
from orchestration.tables.spark import in_short, session_to_ask, start_session
from orchestration.tables.spark import schema as schema_of
from publisher import PublisherSettings, SessionLostError, SupersededError, error_kinds_from_rows, refuse_superseded, take_charge
from publisher import SettingsError as PublisherSettingsError

log = logging.getLogger(__name__)

# Between the attempts of a start to take over from a loop that is still writing, in seconds.
_TAKE_OVER_PAUSES = (0.1, 0.2, 0.5, 1, 2, 5)

# How long a loop that can send nothing more has to write down what it sent last, and how often it is looked whether it has, in seconds.
_LAST_WORDS = 15.0
_LAST_WORDS_GLANCE = 0.2

# How long Kafka has to say, at the beginning of a tick, which loop is in charge, in milliseconds: each send asks once more.
_GLANCE_MS = 1_000

# How often a loop that runs until it is idle says what it waits for, in seconds.
_SAYS_EVERY = 60.0

# The first pause after trouble, and the longest: doubled in between.
_PAUSE = timedelta(seconds=1)
_LONGEST_PAUSE = timedelta(seconds=60)

# Topics that are looked at for how wide a missing destination must be: a shared one is for many.
_ORIGINALS = 100

# Where announcements have got to, among the positions.
_ANNOUNCED = "announced"

# Up to which batch of results the sends are awaited, among the positions.
_AWAITED = "awaited"

# How much of what waits for a destination that was set aside is looked at first.
_FIRST_REACH = timedelta(seconds=60)

# How many destinations that were set aside are tried in one step.
_TRIED_AT_ONCE = 100


@dataclass
class Pause:
    """Something that doesn't work at the moment: not tried before `until`, and each time after a longer pause."""

    why: str
    until: datetime
    pause: timedelta = _PAUSE

    def prolonged(self, why: str, now: datetime) -> Pause:
        """The pause after the next failure."""
        longer = min(self.pause * 2, _LONGEST_PAUSE)
        return Pause(why, now + longer, longer)


@dataclass
class SetAside(Pause):
    """A destination that takes no sends. Its messages wait from `floor` on, while the loop's own floor moves over them.

    reach: how far behind its floor the next attempt looks. Longer with each that succeeds, so that one that fails reads little.
    """

    floor: datetime = field(kw_only=True)
    reach: timedelta = _FIRST_REACH

    def failed(self, why: str, now: datetime) -> SetAside:
        """After another attempt in vain."""
        longer = self.prolonged(why, now)
        return SetAside(longer.why, longer.until, longer.pause, floor=self.floor)

    def done(self, upto: datetime, until: datetime) -> SetAside:
        """After an attempt that sent everything up to a moment: the rest follows at `until`, at once where nothing keeps it."""
        return SetAside(self.why, until, _PAUSE, floor=upto, reach=self.reach * 2)

    def window(self, topic: str, now: datetime) -> Window:
        """What the next attempt looks at."""
        return Window(topic, self.floor, min(now, self.floor + self.reach))


@dataclass(frozen=True)
class Postponed:
    """Sends whose outcome is unknown: due since, and not sent again before `until`. The floor stays under them."""

    since: datetime
    until: datetime


@dataclass
class Tick:
    """What one tick did: rows by what happened to them, and milliseconds by step."""

    counts: dict[str, int] = field(default_factory=dict)
    step_ms: dict[str, int] = field(default_factory=dict)
    lateness_ms: tuple[int, int] | None = None
    rest: bool = False
    unread: frozenset[str] | None = None
    """What the sources speak for of which not every report has been taken in that was there at its beginning; None: nothing is known."""

    @property
    def did_something(self) -> bool:
        """Whether it is worth a row in `ticks`."""
        return any(self.counts.values())


class Loop:
    """One loop: `start` takes the generation, `tick` turns once, `run` turns until it is stopped."""

    def __init__(self, settings: Settings, on_tick: Callable[[Tick], None] | None = None) -> None:
        self.settings = settings
        self.stopping = threading.Event()
        self.sending = threading.Lock()
        """Held while messages are sent, until it is written down what became of them: a process that ends in between sends them twice."""
        self.on_tick = on_tick
        self._trouble: dict[str, Pause] = {}
        self._set_aside: dict[str, SetAside] = {}
        self._postponed: list[Postponed] = []
        self._unrecorded: Unrecorded | None = None
        self._unsure = False
        self._next_due: datetime | None = None
        self._cold = True
        self._undecided = 0
        self._undecided_since: datetime | None = None
        self._tick = 0
        self._begun = Tick()
        self._in_charge = False
        self._started = False
        self._has_ended = False
        self.superseded_by: int | None = None
        self.announcer: Announcer | None = None
        self.metrics: Metrics | None = None
        self._last_status: Tick = Tick()
        self._fence_topics: tuple[str, ...] = ()
        self._settled: dict[Place, int] = {}
        self._commands_came = True

    # ---------- start

    def start(self) -> None:
        """Goes on from the last row of `ticks`, takes the next generation, sends what is due, and decides what was left undecided.

        Whatever takes long and needs nothing of the loop before comes first, so that little time lies between that loop's last send and the
        first one here. Returns early where it is told to stop, or another loop is in charge. Raises SeedError, DbtError.
        """
        self.seeds = read_seeds(self.settings.seeds)
        self.spark: SparkSession = start_session(self.settings)
        self.schema = schema_of(self.settings.project)
        self.dbt = Dbt(self.settings)
        self._prepare_tables()
        self.cluster = Cluster(self.settings.kafka_properties)
        self._presence = Presence(self.settings.home)
        self.topic_maker = TopicMaker(self.cluster, self.settings)
        self._rules_hash: str | None = None
        if not self._take_over():
            return
        self._say_who_is_in_charge()
        self.publisher = self._publish_step()
        self._begin_to_announce()
        self._begin_to_measure()
        self._find_undecided()
        left, upto = self._undecided, self.ledgers.batch
        self._send_first()
        if left and not self.stopping.is_set():
            # by the rules that are in the tables; what has come since is decided by those that are loaded now
            self._fold(Tick(), upto)
            self._find_undecided()
        if not self.stopping.is_set():
            self._load_seeds()

    def _send_first(self) -> None:
        """Sends what is due before anything is decided: a first fold takes half a minute, and one that ends the process does so each time.

        Reports are taken in first all the same: they tell what was sent by a loop that was killed before it could write that down. All this
        counts as the beginning of the first tick.
        """
        tick = self._begun
        self._take_in(tick)
        while not self.stopping.is_set():
            tick.rest = False
            self._publish(tick)
            if not tick.rest:
                break
        if tick.did_something:
            log.info("before anything is decided: %s", _rows(tick))

    def _begin_to_announce(self) -> None:
        """Goes on announcing where the last loop got to; from now on, if that one didn't."""
        if not self.settings.decisions_topic:
            self.intake.positions.pop(_ANNOUNCED, None)
            return
        self.announcer = Announcer(self.spark, self.schema, self._outlet(self.settings.decisions_topic))
        self.intake.positions.setdefault(_ANNOUNCED, self.watermark)

    def _outlet(self, topic: str) -> Outlet:
        return Outlet(self.cluster, self.settings.kafka_properties, topic)

    def _watch(self, last: SparkRow | None) -> None:
        """Goes on with the gates and the groups that the last loop watched, and with what it did after its last row of `ticks`."""
        settle = timedelta(seconds=self.settings.settle_seconds)
        self.gates = Gates(self.spark, self.schema, self.ledgers, settle, self.settings.gate_release_rate)
        self.gates.remember(last["gates"] or {} if last else {})
        self._keep_floor_under(
            self.gates.decided(int(last["watermark"]) if last else 0, self.watermark, self.clock.now(), self._lowest_floor())
        )
        self.gates.resume(int(last["batch"]) if last else 0)
        self.consumers = Consumers(self.spark, self.schema, self.cluster, settle, self.intake.positions.get(_AWAITED, 0))
        self.consumers.remember(last["awaited"] or [] if last else [])
        self.gates_outlet = self._outlet(self.settings.gates_topic) if self.settings.gates_topic else None
        most = min(self.settings.intake_max_rows, ISSUED_AT_ONCE)
        self.commands = Commands(self.spark, self.schema, self.ledgers, self.intake.positions, most)

    def _begin_to_measure(self) -> None:
        """Tells Prometheus from now on what is decided and sent, where somebody wants to know."""
        if self.settings.metrics_port:
            ask = session_to_ask(self.settings)
            metrics = Metrics(self.settings, self.spark, ask, self.schema, watermark=self.watermark, batch=self.ledgers.batch)
            self.metrics = metrics if metrics.serve(self.settings.metrics_address, self.settings.metrics_port) else None

    def _prepare_tables(self) -> None:
        """Makes tables and views where they are missing or the project has changed since they were made."""
        move_tables(self.settings)
        stamp = self.settings.project_digest
        digest = _digest(self.settings.project)
        made = stamp.read_text(encoding="utf-8") if stamp.exists() else ""
        self.spark.sql(f"create namespace if not exists {self.schema}")
        tables = {row["tableName"] for row in self.spark.sql(f"show tables in {self.schema}").collect()}
        if made != digest or not {"deliveries", "rules"} <= tables:
            log.info("preparing tables and views")
            self.dbt.run("seed")
            self.dbt.run("run", variables={"watermark": 0, "upto": 0})
            stamp.write_text(digest, encoding="utf-8")
            self._seeds_file.write_text(self._seeds_stamp(self._loaded_rules()), encoding="utf-8")

    def _take_over(self) -> bool:
        """Takes the next generation: in Kafka, so that an older loop sends nothing more, then by a row in each ledger, so that it appends
        nothing more. In between it may write down what it has sent, or that would be sent again here.

        Where Kafka gives no answer the tables are taken all the same, and Kafka before the first send. `ticks` is the first ledger, so that
        the older one sees who refused it. What it appends in between does no harm: the ends are read again, and where it had got to is read
        last. Returns whether this loop is in charge of the tables.
        """
        for pause in (*_TAKE_OVER_PAUSES, None):
            last = self._go_on()
            self._in_charge = False
            if not self.stopping.is_set():
                self._next_in_kafka()
            if self.stopping.is_set():
                return False
            if self._in_charge and self._hear_last_words(last):
                before, last = self.ledgers.generation, self._go_on()
                self._in_charge = self.ledgers.generation == before
            try:
                self.ledgers.append("ticks", self._tick_row("start", Tick()), self.clock.now())
                break
            except AppendError:
                # another loop has written in the meantime, or is starting just now
                if pause is None:
                    raise
            time.sleep(pause)
        self._started = True
        self._presence.show(self.ledgers.generation)
        for ledger in ("events", "publish_results"):
            self._append_start(ledger)
        # only now, as the older loop could still tell of such sends until then
        self._postponed = self._still_unknown()
        self.intake.positions.update(self._positions(last))
        return True

    def _go_on(self) -> SparkRow | None:
        """Reads where the last loop has got to, and its last row of `ticks`; this one's generation is the next."""
        self.ledgers = Ledgers(self.spark, self.schema)
        self.ledgers.read_end()
        last = self._last_tick()
        self.ledgers.generation = (last["generation"] if last else 0) + 1
        self.clock = LoopClock(last["loop_time"] if last else None)
        self.floor: datetime = last["floor"] if last else self.clock.now()
        self.watermark = max(int(last["watermark"]) if last else 0, self._max_batch("deliveries"))
        self._set_aside = _set_aside_in(last)
        self.intake = Intake(self.spark, self.settings, self.cluster, self.ledgers, self.seeds.rows["sources"], self._positions(last))
        self._watch(last)
        return last

    def _next_in_kafka(self) -> None:
        """Takes the generation in Kafka, if Kafka answers."""
        try:
            self._fence()
        except SupersededError as error:
            if not self._knows(error.by):
                self._superseded(error.by)
            # else it is starting just now: whoever appends to the tables first is in charge, and the other one tries again
        except (ClusterError, SessionLostError) as error:
            self._cannot_send(error)

    def _hear_last_words(self, last: SparkRow | None) -> bool:
        """Waits until the loop before, which can send nothing more, has written down what it sent; says whether it may have written.

        Not where it has ended before. A loop that is frozen, or was killed elsewhere, is not waited for without end.
        """
        if last is None or last["kind"] == "end" or self._presence.has_ended(last["generation"]):
            return False
        before = last["generation"]
        log.info("generation %d may be at work: it gets %g s to write down what it has sent", before, _LAST_WORDS)
        deadline = time.monotonic() + _LAST_WORDS
        while not (self._presence.has_ended(before) or self.ledgers.has_said_its_end(before) or self.stopping.is_set()):
            if time.monotonic() >= deadline:
                log.warning("generation %d does not say that it has ended: what it sent and has not written down is sent again", before)
                break
            time.sleep(_LAST_WORDS_GLANCE)
        return True

    def _say_who_is_in_charge(self) -> None:
        if self._in_charge:
            log.info("generation %d of instance %s is in charge", self.ledgers.generation, self.settings.instance)
        else:
            log.warning(
                "generation %d of instance %s is in charge of the tables, and not yet in Kafka: nothing is sent until it is",
                self.ledgers.generation, self.settings.instance,
            )  # fmt: skip

    def _append_start(self, ledger: str) -> None:
        """Takes over in a ledger: an older loop may still append there until then."""
        for pause in (*_TAKE_OVER_PAUSES, None):
            try:
                self._seal(ledger)
                return
            except TakenOverError:
                raise
            except AppendError:
                if pause is None:
                    raise
            time.sleep(pause)
            # the older loop has appended once more: now it is seen
            self.ledgers.read_end()

    def _seal(self, ledger: str) -> None:
        """Appends a row that says nothing but that this loop is in charge: whatever was to be appended before is refused from then on."""
        now = self.clock.now()
        if ledger == "ticks":
            self.ledgers.append(ledger, self._tick_row("tick", Tick()), now)
            return
        said: dict[str, object] = {"outcome": "start", "due_at": now}
        if ledger == "events":
            coordinates = synthetic_events.start(self.ledgers.next_batch)
            said = {**dict(zip(synthetic_events.NAMES, coordinates, strict=True)), "detail": self.settings.instance}
        schema = self.spark.table(self.ledgers.name(ledger)).schema
        row = {"kind": "start", **said}
        self.ledgers.append(ledger, self.spark.createDataFrame([tuple(row.values())], StructType([schema[name] for name in row])), now)

    def _still_unknown(self) -> list[Postponed]:
        """Sends of loops before whose outcome is unknown, and which may not be repeated yet."""
        still = self.spark.sql(
            f"""
            select min(due_at) as since, max(not_before) as until from {self.schema}.publish_results
            where not_before > {literal(self.clock.now())}
            """
        )
        (row,) = collected(still)
        return [Postponed(row["since"], row["until"])] if row["until"] else []

    def _last_tick(self) -> SparkRow | None:
        """The last row of `ticks`, of the batch that is known to be its last: `ticks` grows for ever, and is not read for one row."""
        rows = collected(self.spark.sql(f"select * from {self.schema}.ticks where batch = {self.ledgers.end_of('ticks'):d}"))
        return rows[0] if rows else None

    def _positions(self, last: SparkRow | None) -> dict[str, int]:
        """Next offsets: what `ticks` says, raised by what was appended to `events` after that."""
        positions = dict(last["positions"]) if last else {}
        since = int(last["batch"]) if last else 0
        appended = self.spark.sql(
            f"""
            with

            read as (
                select concat_ws('/', topic_id, partition) as key, offset + 1 as next, source from {self.schema}.events
                where batch >= {since} and kind in ('report', 'command') and delivery_id is null

                union all

                -- a gap says itself where reading goes on: a second one would be noticed, or what has come meanwhile would be skipped
                select cast(key as string), try_cast(cast(value as string) as bigint), source from {self.schema}.events
                where batch >= {since} and kind = 'gap' and key is not null
            )

            select key, max(next) as next, any_value(source) as source from read group by key
            """
        ).collect()
        for row in appended:
            positions[row["key"]] = max(positions.get(row["key"], 0), int(row["next"]))
            positions.setdefault(f"source:{row['source']}", 1)
        issued = self.spark.sql(
            f"""
            select command, max(index) + 1 as next from {self.schema}.events
            where batch >= {since} and command is not null and kind <> 'command'
            group by command
            """
        ).collect()
        return {**positions, **issued_in(issued)}

    def _max_batch(self, table: str) -> int:
        return int(self.spark.sql(f"select coalesce(max(batch), 0) as batch from {self.schema}.{table}").collect()[0]["batch"])

    def _publish_step(self) -> PublishStep:
        kinds = error_kinds_from_rows(row.values for row in self.seeds.rows["publish_error_kinds"])
        return PublishStep(
            spark=self.spark,
            schema=self.schema,
            ledgers=self.ledgers,
            settings=PublisherSettings(
                kafka=dict(self.settings.kafka_properties),
                error_kinds=kinds,
                transactional_prefix=self.settings.transactional_prefix,
                instance=self.settings.instance,
                generation=self.ledgers.generation,
                fence_topics=self._fence_topics,
                transactions=self.settings.transactions,
            ),
            slots=self.settings.slots,
            max_rows=self.settings.publish_max_rows,
            max_bytes=self.settings.publish_max_bytes,
        )

    # ---------- rules

    def _load_seeds(self) -> None:
        """Loads the seeds, if others were loaded last, and takes the hash that every fold from now on must find."""
        stamp = self._seeds_file.read_text(encoding="utf-8") if self._seeds_file.exists() else ""
        rules = self._loaded_rules()
        # what a bare `dbt build` has made of other files is no longer what was loaded here
        if stamp != self._seeds_stamp(rules):
            self.dbt.run("seed")
            self.dbt.run("run", select=["rules"])
            rules = self._loaded_rules()
            self._seeds_file.write_text(self._seeds_stamp(rules), encoding="utf-8")
        self._rules_hash = rules
        self.intake.use(self.seeds.rows["sources"])
        self.publisher = self._publish_step()

    @property
    def _seeds_file(self) -> Path:
        return self.settings.home / "seeds.digest"

    def _seeds_stamp(self, rules: str) -> str:
        """Tells these files, and what was made of them."""
        return f"{self.seeds.digest} {rules}\n"

    def _loaded_rules(self) -> str:
        """The hash of the rules that a fold would find now."""
        return str(self.spark.table(f"{self.schema}.rules").select("rules_hash").collect()[0]["rules_hash"])

    def _reload_changed_seeds(self) -> None:
        if not self._may("seeds"):
            return
        try:
            seeds: Seeds = read_seeds(self.settings.seeds)
        except SeedError as error:
            self._say("seeds", f"the seeds have changed and can't be used; the old rules stay in force:\n{error}")
            return
        if seeds.digest == self.seeds.digest:
            self._well("seeds")
        else:
            log.info("the seeds have changed: loading them")
            self.seeds = seeds
            try:
                self._load_seeds()
            except Exception as error:
                self.seeds = Seeds(seeds.rows, "")
                if _is_gone(error):
                    raise
                self._say("seeds", f"the seeds could not be loaded: {error if isinstance(error, DbtError) else in_short(error)}")

    # ---------- one tick

    def tick(self) -> Tick:
        """Intake, fold, publish: what there is of each. A step that can't be done now is left for later, and said."""
        self._tick += 1
        tick, self._begun = self._begun, Tick()
        tick.rest = False
        began = self.clock.now()
        self._settled = {}
        if self._unsure and self._has_paused("ledgers"):
            self._read_again()
        self._look_who_is_in_charge()
        if not self.stopping.is_set():
            self._reload_changed_seeds()
        if not self.stopping.is_set():
            self._take_in(tick)
        if not self.stopping.is_set():
            self._obey(tick)
        if not self.stopping.is_set() and self._undecided and (self._cold or "fold" in self._trouble):
            # a first fold takes long, and one that fails may take as long each time: what is due doesn't wait for it
            self._publish(tick)
        if not self.stopping.is_set():
            self._fold(tick)
        if not self.stopping.is_set():
            self._publish(tick)
        if not self.stopping.is_set():
            self._look_at_consumers(tick, began)
        if not self.stopping.is_set():
            self._announce(tick)
            self._tell_gates()
        if tick.did_something and self.superseded_by is None:
            # while it is not known how far everything is, a row would say what isn't so
            if not self._unsure:
                self._append_tick(tick)
            _log_tick(self._tick, tick)
        self._last_status = tick
        self._write_status("running")
        self._measure(tick)
        if self.on_tick:
            self.on_tick(tick)
        return tick

    def _take_in(self, tick: Tick) -> None:
        if not self._may("kafka") or not self._may("ledgers"):
            return
        if self._trouble.get("fold") and self._undecided > 4 * self.settings.intake_max_rows:
            return
        began = time.monotonic()
        try:
            everything = self.intake.available(began)
            self._well("kafka")
        except ClusterError as error:
            self._say("kafka", str(error))
            return
        if self.intake.begun:
            tick.counts["begun"] = self.intake.begun
        if self.intake.unanswered:
            self._say("partitions", f"no answer from {', '.join(self.intake.unanswered)}: what is reported there is not read yet")
        else:
            self._well("partitions")
        tick.unread = self.intake.unread(everything)
        for source in self.intake.unreadable.keys() - {part.source for part in everything}:
            # there is nothing left to read, or no such source any more
            del self.intake.unreadable[source]
            self._well(_source(source))
        # a source that can't be read is left alone for growing pauses, and stops no other
        available = [part for part in everything if self._may(_source(part.source))]
        if not available and not self.intake.is_cut:
            return
        self._commands_came = self._commands_came or any(part.source == COMMANDS for part in available)
        recorded_at = self.clock.now()
        try:
            events = self.intake.take(available, recorded_at)
        except ClusterError as error:
            self._say("kafka", str(error))
            return
        except AppendError as error:
            self._after_failed_append(error)
            return
        except Exception as error:
            self._tables_failed(error)
            return
        if events:
            self._well("ledgers")
            self._await_decision(events, recorded_at)
        for source in sorted({part.source for part in available}):
            if source in self.intake.unreadable:
                self._say(_source(source), self.intake.unreadable[source])
            else:
                self._well(_source(source))
        tick.unread = self.intake.unread(everything)
        tick.counts["events"] = tick.counts.get("events", 0) + events
        tick.rest = tick.rest or events >= self.settings.intake_max_rows
        tick.step_ms["intake"] = tick.step_ms.get("intake", 0) + _ms_since(began)
        self.intake.commit_offsets()

    def _obey(self, tick: Tick) -> None:
        """Writes down what operators want of single messages. Before the fold, so that nothing is sent between look and decision."""
        if not self._may("ledgers") or self._unrecorded is not None or {"fold", "sends"} & self._trouble.keys():
            return
        now = self.clock.now()
        try:
            self.commands.obey(now, came=self._commands_came)
            self._commands_came = False
        except AppendError as error:
            self._after_failed_append(error)
        except Exception as error:
            self._tables_failed(error)
        ordered, self.commands.undecided = self.commands.undecided, 0
        if ordered:
            tick.counts["ordered"] = ordered
            self._await_decision(ordered, now)
        tick.rest = tick.rest or self.commands.rest

    def _await_decision(self, inputs: int, since: datetime) -> None:
        """Keeps the floor under what is not decided yet: a decision is due at the earliest when its input was recorded."""
        self._undecided += inputs
        self._undecided_since = min(filter(None, (self._undecided_since, since)))
        self._keep_floor_under(since)

    def _keep_floor_under(self, since: datetime | None) -> None:
        """Lets the next look into the wheel begin there at the latest."""
        if since is None:
            return
        self.floor = min(self.floor, since)
        for aside in self._set_aside.values():
            aside.floor = min(aside.floor, since)

    def _find_undecided(self) -> int | None:
        """What lies in the ledgers without a decision, left by another loop, or by a fold for the next one. Returns its first batch."""
        undecided = " union all ".join(
            f"select batch, recorded_at from {self.ledgers.name(ledger)} where batch > {self.watermark}{which}"
            # that a loop took over is noted with whatever comes next: waiting for it would keep everything else waiting
            for ledger, which in (("events", " and kind <> 'start'"), ("publish_results", " and outcome = 'failed'"))
        )
        (row,) = collected(self.spark.sql(f"select count(*) as inputs, min(recorded_at) as since, min(batch) as first from ({undecided})"))
        self._undecided, self._undecided_since = 0, None
        if row["inputs"]:
            self._await_decision(int(row["inputs"]), row["since"])
        self.gates.find_undecided(self.watermark)
        return None if row["first"] is None else int(row["first"])

    def _fold(self, tick: Tick, upto: int | None = None) -> None:
        if self._undecided == 0 or not self._may("fold") or self._unsure:
            return
        self._decide(tick, self.ledgers.batch if upto is None else upto)

    def _decide(self, tick: Tick, upto: int) -> None:
        """Decides what is in the ledgers up to a batch, by as many folds as it takes: one ends before a second batch about its messages."""
        began = time.monotonic()
        while self._decide_some(tick, upto) and self.watermark < upto and not self.stopping.is_set():
            pass
        if "decisions" in tick.counts:
            tick.step_ms["fold"] = _ms_since(began)

    def _decide_some(self, tick: Tick, upto: int) -> bool:
        """One fold. Returns whether the next may follow."""
        try:
            if self._is_superseded():
                return False
        except Exception as error:
            self._tables_failed(error)
            return False
        variables: dict[str, object] = {"watermark": self.watermark, "upto": upto}
        if self._rules_hash:
            variables["rules_hash"] = self._rules_hash
        failed: DbtError | None = None
        try:
            self.dbt.run("run", select=["deliveries"], variables=variables)
        except DbtError as error:
            failed = error
        try:
            decided = self._note_decided(upto if failed is None else None)
            if failed is not None and self._rules_hash is not None and self._rules_hash != self._loaded_rules():
                # the rules have changed under it: look at the files again with the next tick
                self.seeds = Seeds(self.seeds.rows, "")
        except Exception as error:
            # nothing is sent before it is known what must be held
            if failed is not None:
                self._say("fold", f"reports wait: {failed}")
            self._tables_failed(error)
            return False
        tick.counts["decisions"] = tick.counts.get("decisions", 0) + decided
        if failed is not None and not decided:
            self._say("fold", f"nothing was decided, and reports wait: {failed}")
            return False
        if failed is not None:
            log.warning("fold: %d inputs are decided, though it failed, or by another fold: %s", decided, failed)
        self._well("fold")
        self._cold = False
        return decided > 0

    def _note_decided(self, upto: int | None) -> int:
        """Sees how far the tables are decided, and which gates that closes; returns how many inputs have been decided since then.

        What is committed counts, whoever did it and whatever was said of it: no batch is decided twice. upto: where a fold that has ended
        well was told to end; None: it has not, and only what lies in the table counts.
        """
        before = self._undecided
        reached = max(self.watermark, self._max_batch("deliveries"))
        if reached > self.watermark:
            self._keep_floor_under(self.gates.decided(self.watermark, reached, self.clock.now(), self._lowest_floor()))
            self._next_due = None
        self.watermark = reached
        first: int | None = None
        if reached < self.ledgers.batch:
            first = self._find_undecided()
        else:
            self._undecided, self._undecided_since = 0, None
        if upto is not None and (first is None or first > upto):
            # what is left up to there are batches without inputs
            self.watermark = max(reached, upto)
        return before - self._undecided

    def _publish(self, tick: Tick) -> None:
        now = self.clock.now()
        if not self._may("ledgers") or not self._may("sends"):
            return
        if self._next_due is not None and now < self._next_due:
            return
        try:
            if not self._in_charge and not self._take_charge():
                return
        except PublisherSettingsError:
            raise
        except Exception as error:
            self._tables_failed(error)
            return
        with self.sending:
            self._send(tick, now)

    def _send(self, tick: Tick, now: datetime) -> None:
        began = time.monotonic()
        try:
            # a newer loop that does not reach Kafka has fenced nothing there
            if self._is_superseded():
                return
            before = self.ledgers.batch
            self._record_late()
            self.gates.sent(before, now)
            self._hold(tick, now)
            before = self.ledgers.batch
            self._publish_due(tick, now)
            if not self.stopping.is_set() and self._may("sends"):
                self._publish_set_aside(tick, now)
            self.gates.sent(before, now)
        except AppendError as error:
            if isinstance(error, ResultsLostError):
                self._unrecorded = None
            elif isinstance(error, UnrecordedError) and self._unrecorded is None:
                self._unrecorded = error.unrecorded
                self._postpone(error.unrecorded.published)
            self._after_failed_append(error)
            self._next_due = None
            return
        except Exception as error:
            # nothing is assumed about what a step has done that did not end: what it sent and could not tell is sent again
            self._tables_failed(error)
            self._next_due = None
            return
        if any(tick.counts.get(outcome) for outcome in ("delivered", "failed", "unknown")):
            tick.step_ms["publish"] = tick.step_ms.get("publish", 0) + _ms_since(began)
        self._well("ledgers")
        again = [
            *(aside.until for aside in self._set_aside.values()),
            *(some.until for some in self._postponed),
            *filter(None, [self.gates.next_look]),
        ]
        if self._next_due is not None and again:
            self._next_due = min([self._next_due, *again])

    def _hold(self, tick: Tick, now: datetime) -> None:
        """Closes what is due behind closed gates as held, but for their probes."""
        closed = self.gates.closed
        if not closed:
            return
        floor = self._lowest_floor()
        what = Due(floor, now, now, undecided_after=self._undecided_after)
        gated = self.publisher.waiting(what, gates=closed)
        held, asked = self.gates.hold(self.publisher, what, gated)
        tick.counts["held"] = tick.counts.get("held", 0) + held
        if asked:
            self._await_decision(asked, now)
            tick.rest = True

    @property
    def _undecided_after(self) -> int | None:
        """The last batch that is decided, where there are inputs after it: see Due."""
        return self.watermark if self._undecided else None

    def _lowest_floor(self) -> datetime:
        """Nothing that is open was due before, wherever it goes."""
        return min([self.floor, *(aside.floor for aside in self._set_aside.values())])

    def _record_late(self) -> None:
        """Appends the results that could not be appended before: until they are, nothing else is sent, or it would be sent twice."""
        if self._unrecorded is not None:
            self.publisher.record(self._unrecorded, self.clock.now)
            self._unrecorded = None
            self._well("ledgers")
            self._find_undecided()

    def _publish_due(self, tick: Tick, now: datetime) -> None:
        """Sends what is due, but for the destinations that are set aside, and moves the floor over it."""
        what = Due(self.floor, now, now, without=tuple(self._set_aside), undecided_after=self._undecided_after)
        waiting = self.publisher.waiting(what)
        self._next_due = waiting.next_due or now + HORIZON
        if waiting.rows == 0:
            self._forget_postponed(now)
            self._move_floor(now)
            return
        published = self.publisher.run(what, self.clock.now, waiting)
        self._count(published, tick, now)
        stops = self._stops_of(published)
        if not published.stops:
            # what was unknown before, and might be sent again by now, has been read with this step
            self._forget_postponed(now)
        self._postpone(published)
        if stops is None:
            # tried again as soon as the pause of "sends" is over
            self._next_due = None
            return
        for topic, reason in stops.items():
            self._set_aside[topic] = SetAside(reason, now + _PAUSE, floor=what.floor)
            log.warning("destination %s is set aside, its messages wait: %s", topic, reason)
        if what.undecided_after is None:
            self._move_floor(published.upto)
        if not published.complete:
            self._next_due = None

    def _publish_set_aside(self, tick: Tick, now: datetime) -> None:
        """Tries destinations again that were set aside, all in one step: first with little of what waits for each, then, step by step, with
        the rest. One for which nothing waits any more is forgotten."""
        windows = [self._set_aside[topic].window(topic, now) for topic in self._worth_a_try(now)]
        if not windows:
            return
        what = Due.within(windows, now, self._undecided_after)
        waiting = self.publisher.waiting(what)
        upto, stops = what.upto, {}
        if waiting.rows:
            published = self.publisher.run(what, self.clock.now, waiting)
            self._count(published, tick, now)
            said = self._stops_of(published)
            self._postpone(published)
            # where Kafka as a whole took nothing, each of them has failed
            stops = said if said is not None else {window.topic: self._set_aside[window.topic].why for window in windows}
            upto = published.upto
        for window in windows:
            aside = self._set_aside[window.topic]
            if window.topic in stops:
                self._set_aside[window.topic] = aside.failed(stops[window.topic], now)
            elif upto < window.floor:
                # there was no room for it in this step
                tick.rest = True
            else:
                self._go_on_with(tick, window, min(window.upto, upto), now)

    def _go_on_with(self, tick: Tick, window: Window, upto: datetime, now: datetime) -> None:
        """After an attempt that sent what a destination was set aside with, up to a moment: the rest is next, if there is any."""
        aside = self._set_aside[window.topic]
        # what an undecided event names was left out, and is looked for again
        floor = aside.floor if self._undecided_after is not None else max(aside.floor, self._closed_until(upto))
        if upto < now:
            self._set_aside[window.topic] = aside.done(floor, now)
            tick.rest = True
        elif floor < min(now, self.floor):
            # something was left out, or is of unknown outcome and to be sent again, and the loop's own floor has moved over it
            self._set_aside[window.topic] = aside.done(floor, min((some.until for some in self._postponed), default=now + _PAUSE))
        else:
            log.warning("destination %s is no longer set aside: nothing waits for it any more", window.topic)
            del self._set_aside[window.topic]

    def _worth_a_try(self, now: datetime) -> list[str]:
        """The destinations that were set aside and are tried in this step: if the pause of one is over, all those whose pause is half over.

        From then on their pauses end together: tried one by one, sixty of them would leave no time for anything else.
        """
        if all(aside.until > now for aside in self._set_aside.values()):
            return []
        ready = [topic for topic, aside in self._set_aside.items() if aside.until - now <= aside.pause / 2]
        return sorted(ready, key=lambda topic: self._set_aside[topic].until)[:_TRIED_AT_ONCE]

    def _announce(self, tick: Tick) -> None:
        """Announces what was decided since the last time, where somebody wants to hear of it."""
        after = self.intake.positions.get(_ANNOUNCED)
        if self.announcer is None or after is None or after >= self.watermark or not self._may("announcements") or self._unsure:
            return
        began = time.monotonic()
        try:
            announced = self.announcer.announce(after, self.watermark)
        except (OutletError, ClusterError) as error:
            self._say("announcements", f"decisions are not announced, and will be: {error}")
            return
        except Exception as error:
            self._tables_failed(error)
            return
        self._well("announcements")
        self.intake.positions[_ANNOUNCED] = announced.upto
        tick.counts["announced"] = announced.decisions
        tick.rest = tick.rest or announced.upto < self.watermark
        tick.step_ms["announce"] = _ms_since(began)

    def _look_at_consumers(self, tick: Tick, began: datetime) -> None:
        """Sees how far groups have got, which gates may open for it, and releases what open ones have held."""
        if not self._may("ledgers") or "kafka" in self._trouble:
            return
        # everything that was reported by the beginning of the tick is decided: what is settled is so for good
        complete = Completeness(tick.unread or frozenset(), decided=tick.unread is not None and "fold" not in self._trouble)
        try:
            self._settled = self.consumers.look(began, self.ledgers.batch, complete=complete)
            if self.consumers.unanswered:
                self._say("consumers", "; ".join(sorted(silent.why for silent in self.consumers.unanswered.values())))
            else:
                self._well("consumers")
            self.gates.look(self._settled, self.consumers, began, complete=complete)
            tick.counts["settled"] = len(self._settled)
            self.commands.look(self.consumers, began, complete=complete)
            released = self.gates.release(began)
        except AppendError as error:
            self._after_failed_append(error)
            return
        except Exception as error:
            self._tables_failed(error)
            return
        self.intake.positions[_AWAITED] = self.consumers.looked
        tick.counts["gates"], self.gates.changes = self.gates.changes, 0
        if released:
            tick.counts["released"] = released
            self._await_decision(released, began)
            tick.rest = True

    def _tell_gates(self) -> None:
        """Tells which gates have changed, where somebody wants to hear of it."""
        if self.gates_outlet is None:
            self.gates.untold.clear()
            return
        if not self.gates.untold or not self._may("gates"):
            return
        try:
            self.gates_outlet.tell(self.gates.announcements())
        except (OutletError, ClusterError) as error:
            self._say("gates", f"it is not told which gates are closed, and will be: {error}")
            return
        self._well("gates")
        self.gates.untold.clear()

    def _take_charge(self) -> bool:
        """Takes the generation in Kafka, where the start could not: before the first send."""
        try:
            self._fence()
        except SupersededError as error:
            self._knows(error.by)
            self._superseded(error.by)
            return False
        except (ClusterError, SessionLostError) as error:
            self._cannot_send(error)
            return False
        self._say_who_is_in_charge()
        self._well("sends")
        return True

    def _fence(self) -> None:
        """Tells Kafka that this loop is in charge: what older ones still send is fenced.

        The generation is kept beside the offsets of the sources' topics, as those are the ones that a loop may certainly read.
        """
        self._fence_topics = tuple(sorted(name for name in self.cluster.topic_names() if is_source(self.seeds, name)))
        self.publisher = self._publish_step()
        slots = int(self.spark.sql(f"select max(slots) as slots from {self.schema}.ticks").collect()[0]["slots"] or 0)
        take_charge(self.publisher.settings, self._fence_topics, max(slots, self.settings.slots))
        self._in_charge = True

    def _cannot_send(self, error: Exception) -> None:
        name = f" ({error.trouble.error.name})" if isinstance(error, SessionLostError) else ""
        self._say("sends", f"nothing can be sent yet: {error}{name}")

    def _knows(self, generation: int) -> bool:
        """Whether a generation that is in Kafka is one of these tables: of a loop that has started, or takes the next number just now."""
        knows = generation <= self.ledgers.newest_generation() + 1
        if not knows:
            log.error(
                "Kafka knows of generation %d of instance %s, these tables of none above %d: another installation has the same name, "
                "or the state of an earlier one is gone. Set `instance` (REDRIVE_INSTANCE) to a name of its own",
                generation, self.settings.instance, self.ledgers.newest_generation(),
            )  # fmt: skip
        return knows

    def _look_who_is_in_charge(self) -> None:
        """Ends this loop as soon as Kafka knows of a newer one, which waits until it has ended. Each send looks for itself, too."""
        if not self._in_charge or {"kafka", "sends"} & self._trouble.keys():
            return
        try:
            refuse_superseded(replace(self.publisher.settings, metadata_timeout_ms=_GLANCE_MS))
        except SupersededError as error:
            self._superseded(error.by)
        except SessionLostError as error:
            log.debug("Kafka does not say which loop is in charge: %s", error)

    def _is_superseded(self) -> bool:
        """True if another loop is in charge, which ends this one: a fold's guard keeps batches apart, but knows no generations."""
        by = self.ledgers.superseded_by()
        if by is not None:
            self._superseded(by)
        return by is not None

    def _superseded(self, generation: int) -> None:
        """Ends this loop: another one is in charge."""
        self.superseded_by = generation
        self.stopping.set()
        log.error("generation %d has taken over from generation %d: this loop ends", generation, self.ledgers.generation)

    def _count(self, published: Published, tick: Tick, now: datetime) -> None:
        """Adds what one step did to what the tick did."""
        for name in ("delivered", "dead_letters", "failed", "unknown"):
            tick.counts[name] = tick.counts.get(name, 0) + getattr(published, name)
        tick.lateness_ms = tick.lateness_ms or published.lateness_ms
        if published.failed:
            self._await_decision(published.failed, now)
        tick.rest = tick.rest or not published.complete or published.failed > 0

    def _stops_of(self, published: Published) -> dict[str, str] | None:
        """The destinations that took nothing, and why; None where that is Kafka as a whole, or this loop is not in charge."""
        stops: dict[str, str] = {}
        for stop in published.stops:
            if stop.superseded_by is not None:
                self._superseded(stop.superseded_by)
                return None
            if stop.topic is None:
                self._say("sends", f"nothing can be sent, and nothing is charged for it: {stop.reason}")
                return None
            stops[stop.topic] = self._missing(stop) if stop.is_missing and self.settings.create_topics else stop.reason
        self._well("sends")
        return stops

    def _missing(self, stop: Stop) -> str:
        """Makes a destination that is missing, for the topics of what waits for it: the next try finds it. Returns why it took nothing."""
        assert stop.topic is not None
        now, floor = self.clock.now(), self._lowest_floor()
        what = Due.within([Window(stop.topic, floor, now)], now)
        rows = self.publisher.due(what, self.publisher.waiting(what)).select("original_topic").distinct()
        originals = [row["original_topic"] for row in collected(rows, _ORIGINALS) if row["original_topic"]]
        objection = self.topic_maker.make(stop.topic, originals)
        return stop.reason if objection is None else f"{stop.reason}; it is not made: {objection}"

    def _postpone(self, published: Published) -> None:
        if published.open_since and published.open_until:
            self._postponed.append(Postponed(published.open_since, published.open_until))
            log.warning(
                "the outcome of %d sends is unknown: they are sent again when Kafka has forgotten the first",
                published.unknown,
            )

    def _forget_postponed(self, now: datetime) -> None:
        self._postponed = [some for some in self._postponed if some.until > now]

    def _move_floor(self, upto: datetime) -> None:
        """Moves the floor over what is closed."""
        self.floor = max(self.floor, self._closed_until(upto))

    def _closed_until(self, upto: datetime) -> datetime:
        """How far a floor may move after everything up to a moment was read: not over what is undecided, or of unknown outcome."""
        limits = [upto, *(some.since for some in self._postponed)] + ([self._undecided_since] if self._undecided_since else [])
        return min(limits)

    # ---------- what is written down

    def _append_tick(self, tick: Tick) -> None:
        try:
            self.ledgers.append("ticks", self._tick_row("tick", tick), self.clock.now())
            self.intake.begun = 0
        except AppendError as error:
            self._after_failed_append(error)
        except Exception as error:
            self._tables_failed(error)

    def _tick_row(self, kind: str, tick: Tick) -> DataFrame:
        schema = self.spark.table(self.ledgers.name("ticks")).schema
        row = {
            "tick": self._tick,
            "kind": kind,
            "generation": self.ledgers.generation,
            "instance": self.settings.instance,
            "watermark": self.watermark,
            "floor": self.floor,
            "loop_time": self.clock.now(),
            "positions": self.intake.positions,
            "set_aside": {
                topic: (aside.until, round(aside.pause.total_seconds() * 1000), aside.floor, aside.why)
                for topic, aside in self._set_aside.items()
            },
            "gates": self.gates.state(),
            "settled": [(*place, offset) for place, offset in self._settled.items()],
            "awaited": self.consumers.state(),
            "slots": self.settings.slots,
            "counts": tick.counts,
            "step_ms": tick.step_ms,
        }
        return self.spark.createDataFrame([tuple(row.values())], StructType([schema[name] for name in row]))

    def _after_failed_append(self, error: AppendError) -> None:
        """After an append that failed nothing is assumed: the ends are read again before anything else is written."""
        if isinstance(error, TakenOverError):
            self._superseded(error.by)
            return
        self._next_due = None
        self._say("ledgers", str(error))
        self._read_again()

    def _read_again(self) -> None:
        """Reads from the tables how far everything is. Until that has succeeded, nothing is read, decided or sent."""
        try:
            self.ledgers.read_end()
            self.intake.positions.update(self._positions(self._last_tick()))
            self._find_undecided()
            # last: what lands before is a conflict, and everything is read once more
            for ledger in self.ledgers.in_doubt:
                self._seal(ledger)
            self._unsure = False
        except Exception as reason:
            if _is_gone(reason):
                raise
            self._unsure = True
            self._say("ledgers", f"the ledgers can't be read either: {in_short(reason)}")

    def _tables_failed(self, error: Exception) -> None:
        """Waits with growing pauses for tables that can't be read, or for a statement that Spark could not end.

        What the step has written before it failed is found by reading again. Raises the error when Spark itself is gone: nothing that
        this process can do brings it back.
        """
        if _is_gone(error):
            raise error
        self._unsure = True
        # a look tells whether they are well again, however far away the next due time is
        self._next_due = None
        self._say("ledgers", f"a step could not be ended, and is done again: {in_short(error)}")

    def _write_status(self, state: str) -> None:
        """Writes the status file. A disk that is full stops nothing else here."""
        try:
            write_status(self.settings.status_file, self._status(state))
            self._well("status")
        except OSError as error:
            self._say("status", f"{self.settings.status_file} can't be written: {error}")

    def _status(self, state: str) -> Status:
        tick = self._last_status
        return Status(
            state=state,
            generation=self.ledgers.generation,
            instance=self.settings.instance,
            pid=os.getpid(),
            tick=self._tick,
            at=text(self.clock.now()) or "",
            watermark=self.watermark,
            batch=self.ledgers.batch,
            floor=text(self.floor) or "",
            next_due=text(self._next_due),
            counts=tick.counts,
            step_ms=tick.step_ms,
            lateness_ms=tick.lateness_ms,
            trouble={
                **{what: pause.why for what, pause in self._trouble.items()},
                **{f"destination {topic}": pause.why for topic, pause in self._set_aside.items()},
            },
        )

    def _measure(self, tick: Tick) -> None:
        if self.metrics is not None:
            self.metrics.measure(
                Turn(
                    generation=self.ledgers.generation,
                    watermark=self.watermark,
                    batch=self.ledgers.batch,
                    floor=self.floor,
                    low=self._lowest_floor(),
                    undecided=self._undecided,
                    events=tick.counts.get("events", 0),
                    step_ms=tick.step_ms,
                    lag={} if "kafka" in self._trouble else self.intake.lag(),
                    commands=self.commands.progress(self.clock.now()),
                    set_aside={topic: error_name(aside.why) for topic, aside in self._set_aside.items()},
                    trouble={what: error_name(pause.why) for what, pause in self._trouble.items()},
                )
            )

    # ---------- trouble

    def _may(self, what: str) -> bool:
        return self._has_paused(what) and not (what == "ledgers" and self._unsure)

    def _has_paused(self, what: str) -> bool:
        pause = self._trouble.get(what)
        return pause is None or pause.until <= self.clock.now()

    def _say(self, what: str, why: str) -> None:
        now = self.clock.now()
        why = redacted(why)
        before = self._trouble.get(what)
        self._trouble[what] = before.prolonged(why, now) if before else Pause(why, now + _PAUSE)
        if before is None or before.why != why:
            log.warning("%s: %s", what, why)

    def _well(self, what: str) -> None:
        if self._trouble.pop(what, None):
            log.warning("%s: works again", what)

    # ---------- until it is stopped

    def run(self, *, until_idle: bool = False, at_most: float | None = None) -> bool:
        """Turns until `stopping` is set; with until_idle, until nothing waits and nothing came for idle_for_seconds.

        at_most: ends after so many seconds in any case. Returns whether it was idle in the end.
        """
        began = said = idle_since = time.monotonic()
        idle = False
        while not self.stopping.is_set():
            if at_most is not None and time.monotonic() - began >= at_most:
                log.info("its time of %g s is over; %s", at_most, self._what_it_waits_for())
                break
            if until_idle and time.monotonic() - said >= _SAYS_EVERY:
                said = time.monotonic()
                log.info("not idle yet; %s", self._what_it_waits_for())
            tick = self.tick()
            if tick.did_something or self._trouble or self._set_aside:
                idle_since = time.monotonic()
            if until_idle and time.monotonic() - idle_since >= self.settings.idle_for_seconds:
                if self.waiting() == 0:
                    log.info("nothing waits, and nothing came for %d s", self.settings.idle_for_seconds)
                    idle = True
                    break
                idle_since = time.monotonic()
            if not tick.rest and not (tick.counts.get("events") or tick.counts.get("failed")):
                if self._cold and not tick.did_something and self._may("fold") and self._may("ledgers"):
                    # of nothing, while there is nothing to do: the first one takes some seconds more than the others
                    self._decide(Tick(), self.ledgers.batch)
                self.stopping.wait(self._pause())
        self.close()
        return idle

    def _what_it_waits_for(self) -> str:
        """Why it isn't idle, in a line."""
        reasons = [f"{what}: {pause.why}" for what, pause in self._trouble.items()]
        reasons += [f"destination {topic}: {pause.why}" for topic, pause in self._set_aside.items()]
        if self._undecided:
            reasons.append(f"{self._undecided} inputs are not decided")
        try:
            waiting = self.waiting()
        except Exception as error:
            if _is_gone(error):
                raise
            reasons.append(f"the tables can't be read: {in_short(error)}")
        else:
            if waiting:
                reasons.append(f"{waiting} deliveries are open" + (f", the next at {text(self._next_due)}" if self._next_due else ""))
        return f"it waits for: {'; '.join(reasons)}" if reasons else "nothing waits, but something has come a moment ago"

    def close(self) -> None:
        """Says that the loop has ended, in the tables, too, and leaves Kafka."""
        if self._unrecorded is not None:
            # a loop that has taken Kafka waits for it before it takes the tables
            try:
                self._record_late()
            except Exception as error:
                log.error("the loop ends, and the next one sends again what it sent last: %s", error)
        self._say_its_end()
        self.say_goodbye()
        self.intake.close()
        self._presence.end()
        self.announcer = None
        if self.metrics is not None:
            self.metrics.close()
            self.metrics = None

    def _say_its_end(self) -> None:
        """Writes the last row: a loop that takes over waits for it. Refused where the tables are another loop's already."""
        if not self._started or self._has_ended or self._unsure or self._unrecorded is not None:
            return
        self._settled = {}
        try:
            self.ledgers.append("ticks", self._tick_row("end", Tick()), self.clock.now())
        except Exception as error:
            log.debug("the last row of ticks was not written: %s", error)

    def say_goodbye(self) -> None:
        """Says in the status file and in a line of the log that the loop has ended."""
        if self._has_ended:
            return
        self._has_ended = True
        if not self._started:
            # the status file is another loop's
            log.info("the loop has ended before it was in charge")
            return
        self._write_status("stopped")
        log.info("generation %d has ended after %d ticks", self.ledgers.generation, self._tick)

    def look_now(self) -> None:
        """Looks into the wheel with the next tick: something was put there beside the loop."""
        self._next_due = None

    def waiting(self) -> int:
        """How many deliveries are open, whenever they are due, or held, and how many messages commands are still to do something about."""
        # what the rules have no place for any more waits for other rules
        open_ones = [f"select count(*) as n from {self.schema}.{view}" for view in ("ready", "held_deliveries where not is_refused")]
        return self.commands.waiting + int(self.spark.sql(f"select sum(n) as n from ({' union all '.join(open_ones)})").collect()[0]["n"])

    def _pause(self) -> float:
        """Seconds to sleep: until the next due time, and no longer than Kafka is to be asked for new records."""
        pause = self.settings.poll_seconds
        if self._next_due is not None:
            pause = min(pause, (self._next_due - self.clock.now()).total_seconds())
        return max(pause, 0.01)


def _set_aside_in(last: SparkRow | None) -> dict[str, SetAside]:
    """The destinations that were set aside when a row of `ticks` was written."""
    return {
        topic: SetAside(aside["why"], aside["until"], timedelta(milliseconds=aside["pause_ms"]), floor=aside["floor"])
        for topic, aside in (dict(last["set_aside"] or {}) if last else {}).items()
    }


def _source(name: str) -> str:
    """What a source is called among the troubles."""
    return f"source {name}"


def _is_gone(error: Exception) -> bool:
    """Whether it is Spark itself that is gone."""
    return isinstance(error, Py4JNetworkError | ConnectionError)


def _ms_since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)


def _rows(tick: Tick) -> str:
    return " ".join(f"{name}={count}" for name, count in tick.counts.items() if count)


def _log_tick(number: int, tick: Tick) -> None:
    steps = " ".join(f"{step}_ms={ms}" for step, ms in tick.step_ms.items())
    late = f" late_p50_ms={tick.lateness_ms[0]} late_p99_ms={tick.lateness_ms[1]}" if tick.lateness_ms else ""
    fields = {"tick": number, **tick.counts, **{f"{step}_ms": ms for step, ms in tick.step_ms.items()}, "late_ms": tick.lateness_ms}
    log.info("tick=%d %s %s%s", number, _rows(tick), steps, late, extra={"fields": fields})


def _digest(project: Path) -> str:
    """Tells whether the project's SQL has changed since its views were made."""
    digest = hashlib.sha256()
    files = [project / "dbt_project.yml", *sorted(project.glob("models/**/*")), *sorted(project.glob("macros/**/*"))]
    for path in files:
        if path.is_file():
            digest.update(path.relative_to(project).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
