"""Takes rows apart: by topic, by what their topics allow, in halves. The order within a topic is kept."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc


def topics_in(rows: pa.RecordBatch) -> list[str]:
    """The topics of the rows, each once, in the order in which they first appear."""
    # A name that is not UTF-8 is no legal name either: it is refused, and must not raise before.
    raw: list[bytes | None] = rows.column("topic").unique().cast(pa.binary()).to_pylist()
    return [(name or b"").decode(errors="replace") for name in raw]


def of_topics(rows: pa.RecordBatch, topics: Collection[str]) -> pa.RecordBatch:
    """The rows that go to one of the topics."""
    return rows.filter(pc.is_in(rows.column("topic"), pa.array(list(topics), pa.string())))


def not_of_topics(rows: pa.RecordBatch, topics: Collection[str]) -> pa.RecordBatch:
    """The rows that go to none of the topics."""
    return rows.filter(pc.invert(pc.is_in(rows.column("topic"), pa.array(list(topics), pa.string()))))


def halves(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The first and the second half of at least two rows; neither is empty."""
    middle = rows.num_rows // 2
    return rows.slice(0, middle), rows.slice(middle)
