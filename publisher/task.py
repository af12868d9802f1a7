"""Sends one load after another, and knows what is settled: which destinations take nothing, and which refuse all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from publisher import results, transaction, untransacted
from publisher.contract import CHARGE_ALL
from publisher.destinations import Destination, describe, forget
from publisher.error_kinds import Scope
from publisher.errors import FencedError, SessionLostError, SupersededError
from publisher.fitting import by_batch_size, fitted, misfits, with_partitions
from publisher.lightening import lightened, replaced
from publisher.session import Session
from publisher.settings import PublisherSettings
from publisher.splitting import halves, not_of_topics, of_topics, topics_in
from publisher.transaction import Aborted, Committed, Unanswered, Verdict
from publisher.trouble import Trouble
from publisher.untransacted import Acknowledged


class Task:
    """The work of one call of `publish`. Results wait in it until they are taken."""

    def __init__(self, session: Session, settings: PublisherSettings, slot: int, clock: Callable[[], int]) -> None:
        self._session = session
        self._settings = settings
        self._slot = slot
        self._clock = clock
        self._results: list[pa.RecordBatch] = []
        self._stopped: dict[str, Trouble] = {}
        self._refused: dict[str, Trouble] = {}
        self._splits_left = settings.max_splits
        self._fenced = False

    def take_results(self) -> Iterator[pa.RecordBatch]:
        """The results since the last time, in one batch; none when there are none."""
        if self._results:
            yield results.joined(self._results)
            self._results.clear()

    def send(self, load: pa.RecordBatch) -> None:
        """Sends the rows of a load. Raises SessionLostError when no other load can be sent."""
        try:
            self._send_load(load)
        except SupersededError:
            raise
        except SessionLostError as lost:
            self._fail(self._charging_all(load), lost.trouble)
            raise
        for topic, trouble in self._stopped.items():
            self._fail(of_topics(self._charging_all(load), [topic]), trouble)

    def _send_load(self, load: pa.RecordBatch) -> None:
        rows = self._unsettled(load)
        destinations = self._described(rows)
        rows = with_partitions(self._fitting(self._unsettled(rows), destinations), destinations)
        for batch_size, topics in by_batch_size(destinations, self._settings).items():
            self._send(of_topics(rows, topics) if len(topics) < len(destinations) else rows, batch_size)

    def stop(self, topic: str | None, trouble: Trouble) -> None:
        """Leaves a destination alone for the rest of the call, or all of them where `topic` is None."""
        if topic in self._stopped:
            return
        if topic is not None:
            self._stopped[topic] = trouble
        self._results.append(results.stopped(topic, trouble, self._slot))

    def _described(self, rows: pa.RecordBatch) -> dict[str, Destination]:
        """The destinations of the rows that can be sent to; the others are settled."""
        found: dict[str, Destination] = {}
        for topic, said in describe(topics_in(rows), self._settings).items():
            if isinstance(said, Destination):
                found[topic] = said
            elif said.scope == Scope.CONNECTION:
                self.stop(topic, said)
            else:
                self._refused[topic] = said
        return found

    def _unsettled(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows whose destination is neither stopped nor refusing; refused ones are charged."""
        if self._stopped or self._refused:
            for topic, trouble in self._refused.items():
                self._fail(of_topics(rows, [topic]), trouble)
            rows = not_of_topics(rows, [*self._stopped, *self._refused])
        return rows

    def _fitting(self, rows: pa.RecordBatch, destinations: dict[str, Destination]) -> pa.RecordBatch:
        """The rows that their destinations may take, dead letters if need be with less in them; the others are charged."""
        refused = misfits(rows, destinations, self._settings)
        if not refused:
            return rows
        lighter: dict[int, pa.RecordBatch] = {}
        for row, trouble in refused.items():
            one = rows.slice(row, 1)
            fits = fitted(one, trouble, destinations, self._settings)
            if fits is None:
                self._settle(one, trouble)
            else:
                lighter[row] = fits
        kept = [row for row in range(rows.num_rows) if row in lighter or row not in refused]
        return self._unsettled(_taken(replaced(rows, lighter), kept))

    def _send(self, group: pa.RecordBatch, batch_size: int) -> None:
        """Sends rows that suit one batch size, in as many transactions as their refusals make necessary."""
        # A stack, the earliest rows on top: the two halves of a topic's rows stay in their order.
        waiting = [group]
        while waiting:
            rows = self._unsettled(waiting.pop())
            if rows.num_rows == 0:
                continue
            match self._attempt(rows, batch_size):
                case Committed(sent_at, partitions, offsets):
                    sent = rows.slice(0, len(sent_at))
                    self._results.append(results.delivered(sent, sent_at, partitions, offsets, self._slot))
                    waiting.append(rows.slice(len(sent_at)))
                case Unanswered(sent_at, trouble):
                    not_before = self._clock() + self._settings.transaction_timeout_ms
                    sent = rows.slice(0, len(sent_at))
                    self._results.append(results.unknown(sent, sent_at, trouble, not_before, self._slot))
                    raise SessionLostError(trouble)
                case Aborted() as aborted:
                    waiting += self._again(rows, aborted)
                case Acknowledged() as load:
                    waiting += self._sorted_out(rows, load)

    def _attempt(self, rows: pa.RecordBatch, batch_size: int) -> Verdict | Acknowledged:
        """One transaction, or one load without. The first fence is nobody's news: nothing of the transaction is delivered,
        and a new producer will find out whether a newer loop is behind it, or only an older task of ours."""
        attempt = transaction.attempt if self._settings.transactions else untransacted.attempt
        try:
            return attempt(self._session, rows, batch_size, self._settings, self._clock)
        except FencedError:
            if self._fenced:
                raise
        self._fenced = True
        self._session.close()
        return attempt(self._session, rows, batch_size, self._settings, self._clock)

    def _again(self, rows: pa.RecordBatch, aborted: Aborted) -> Iterator[pa.RecordBatch]:
        """After an abort: settles what is to blame, and gives what to try again, last what comes first."""
        topics = topics_in(rows)
        blamed = aborted.blamed
        if not blamed:
            if aborted.trouble.scope == Scope.CONNECTION:
                raise SessionLostError(aborted.trouble)
            if len(topics) > 1:
                for topic in reversed(topics):
                    yield of_topics(rows, [topic])
                return
            blamed = {topics[0]: aborted.trouble}
        for topic, trouble in blamed.items():
            yield from self._narrowed(of_topics(rows, [topic]), trouble)
        yield not_of_topics(rows, blamed)

    def _sorted_out(self, rows: pa.RecordBatch, load: Acknowledged) -> Iterator[pa.RecordBatch]:
        """After a load without a transaction: settles each row that can be, and gives what to try, last what comes first."""
        handed = rows.slice(0, len(load.sent_at))
        if not load.refused and not load.unanswered and not load.innocent:
            self._results.append(results.delivered(handed, load.sent_at, load.partitions, load.offsets, self._slot))
            yield rows.slice(handed.num_rows)
            return
        others = {*load.refused, *load.innocent, *load.unanswered}
        kept = [row for row in range(handed.num_rows) if row not in others]
        if kept:
            sent_at = [load.sent_at[row] for row in kept]
            partitions, offsets = ([column[row] for row in kept] for column in (load.partitions, load.offsets))
            self._results.append(results.delivered(_taken(rows, kept), sent_at, partitions, offsets, self._slot))
        not_before = self._clock() + self._settings.transaction_timeout_ms
        for some, trouble in _by_reason(rows, load.unanswered):
            sent_at = [load.sent_at[row] for row in some]
            unanswered = _taken(rows, some)
            self._results.append(results.unknown(unanswered, sent_at, trouble, not_before, self._slot))
            self._settle(unanswered, trouble)
        if load.lost is not None:
            raise SessionLostError(load.lost)
        yield rows.slice(handed.num_rows + (handed.num_rows in load.refused))
        if load.innocent:
            yield _taken(rows, sorted(load.innocent))
        for some, trouble in reversed(list(_by_reason(rows, load.refused))):
            yield from self._narrowed(_taken(rows, some), trouble)

    def _narrowed(self, rows: pa.RecordBatch, trouble: Trouble) -> Iterator[pa.RecordBatch]:
        """What is left to try of a topic's rows; nothing once it is clear whom the refusal concerns."""
        if trouble.scope != Scope.RECORD:
            again = []
        elif rows.num_rows == 1:
            lighter = lightened(rows, trouble)
            again = [] if lighter is None else [lighter]
            forget(topics_in(rows)[0], self._settings)
        else:
            again = list(reversed(halves(rows)))
        if not again:
            self._settle(rows, trouble)
        elif self._splits_left == 0:
            self.stop(topics_in(rows)[0], trouble)
        else:
            self._splits_left -= 1
            yield from again

    def _settle(self, rows: pa.RecordBatch, trouble: Trouble) -> None:
        """Charges rows of one topic that are refused, or stops their destination."""
        topic = topics_in(rows)[0]
        forget(topic, self._settings)
        match trouble.scope:
            case Scope.RECORD:
                self._fail(rows, trouble)
            case Scope.TOPIC:
                self._refused[topic] = trouble
                self._fail(rows, trouble)
            case Scope.CONNECTION:
                self.stop(topic, trouble)

    def _charging_all(self, load: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a load without a result whose route charges every send that failed, whoever's fault it is."""
        rows = load.filter(pc.fill_null(pc.equal(load.column("publish_charge"), CHARGE_ALL), False))
        if rows.num_rows == 0 or not self._results:
            return rows
        settled = pa.chunked_array([some.column("delivery_id") for some in self._results])
        return rows.filter(pc.invert(pc.is_in(rows.column("delivery_id"), settled)))

    def _fail(self, rows: pa.RecordBatch, trouble: Trouble) -> None:
        if rows.num_rows:
            self._results.append(results.failed(rows, trouble, self._slot))


def _taken(rows: pa.RecordBatch, positions: Sequence[int]) -> pa.RecordBatch:
    return rows.take(pa.array(positions, pa.int64()))


def _by_reason(rows: pa.RecordBatch, troubles: Mapping[int, Trouble]) -> Iterator[tuple[list[int], Trouble]]:
    """The positions of rows of one topic that share a trouble, in their order, and the trouble."""
    topics = dict(zip(troubles, _taken(rows, list(troubles)).column("topic").to_pylist(), strict=True))
    groups: dict[tuple[str, Trouble], list[int]] = {}
    for row in sorted(troubles):
        groups.setdefault((topics[row], troubles[row]), []).append(row)
    for (_, trouble), some in groups.items():
        yield some, trouble
