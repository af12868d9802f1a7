"""One table for maintenance: its size, and Iceberg's procedures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pyspark.sql import Row, SparkSession

from orchestration.clock import literal
from orchestration.tables.ledgers import APPEND
from orchestration.tables.rows import collected
from orchestration.tables.spark import table_property

# Iceberg's default target size, for a table without a setting of its own.
_MANIFEST_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True)
class Rewrite:
    """Which files of a table may be rewritten, as a condition on rows, and the order in which rows are written; empty: unsorted.

    least_files: how many small files a partition must have.
    """

    where: str
    sort_order: str = ""
    least_files: int = 5


@dataclass(frozen=True)
class Size:
    files: int
    bytes: int


@dataclass(frozen=True)
class Table:
    """One table, and Iceberg's procedures for it."""

    spark: SparkSession
    name: str

    def size(self) -> Size:
        """The size, from the summary of the last snapshot: no data file is read."""
        row = self.spark.sql(
            f"""
            select
                cast(coalesce(max_by(summary['total-data-files'], committed_at), '0') as bigint) as files,
                cast(coalesce(max_by(summary['total-files-size'], committed_at), '0') as bigint) as bytes
            from {self.name}.snapshots
            """
        ).collect()[0]
        return Size(int(row["files"]), int(row["bytes"]))

    def empty(self, changes: Sequence[str], where: str) -> int:
        """Applies assignments, such as `key = null`, to rows; returns how many. Commits nothing if no row matches."""
        return self._change(f"update {self.name} as {self._alias} set {', '.join(changes)}", where)

    def remove(self, where: str, first: Callable[[], None] = lambda: None) -> int:
        """Removes rows; returns how many. Commits nothing if no row matches. Conditions may qualify columns by the table's name.

        first: is done before, if there is something to remove.
        """
        return self._change(f"delete from {self.name} as {self._alias}", where, first)

    def rewrite_files(self, rewrite: Rewrite) -> Size:
        """Combines the small files of a partition if there are enough. Commits nothing if there is nothing to do."""
        order = f", strategy => 'sort', sort_order => '{rewrite.sort_order}'" if rewrite.sort_order else ", strategy => 'binpack'"
        options = f", options => map('min-input-files', '{rewrite.least_files}')"
        done = self._call("rewrite_data_files", f'where => "{rewrite.where}"{order}{options}')
        return Size(int(done["rewritten_data_files_count"]), int(done["rewritten_bytes_count"]))

    def rewrite_manifests(self) -> int:
        """Rewrites the manifests if there are more than twice as many as their total size needs."""
        row = self.spark.sql(f"select count(*) as manifests, coalesce(sum(length), 0) as size from {self.name}.manifests").collect()[0]
        target = int(table_property(self.spark, self.name, "commit.manifest.target-size-bytes") or _MANIFEST_BYTES)
        if row["manifests"] <= 2 * math.ceil(row["size"] / target):
            return 0
        return int(self._call("rewrite_manifests")["rewritten_manifests_count"])

    def expire(self, older_than: datetime, keep: int) -> int:
        """Expires old snapshots, except the last `keep`.

        The last snapshot that the loop appended is kept, too: the guard of its appends validates from there.
        """
        listed = self.spark.sql(
            f"""
            select snapshot_id, committed_at, summary['{APPEND}'] is not null as is_own from {self.name}.snapshots
            order by committed_at desc
            """
        )
        snapshots = collected(listed)
        own = next((row["committed_at"] for row in snapshots if row["is_own"]), None)
        until = min(older_than, own or older_than)
        if not any(row["committed_at"] < until for row in snapshots[keep:]):
            return 0
        self._call("expire_snapshots", f"older_than => {literal(until)}, retain_last => {keep}, stream_results => true")
        left = {row["snapshot_id"] for row in self.spark.sql(f"select snapshot_id from {self.name}.snapshots").collect()}
        return len({row["snapshot_id"] for row in snapshots} - left)

    def remove_orphans(self, older_than: datetime) -> int:
        """Removes files in the table's directory that no snapshot refers to, such as those of a process that was killed."""
        return len(self._calls("remove_orphan_files", f"older_than => {literal(older_than)}"))

    @property
    def _alias(self) -> str:
        return self.name.rpartition(".")[2]

    def _change(self, statement: str, where: str, first: Callable[[], None] = lambda: None) -> int:
        (found,) = self.spark.sql(f"select count(*) as n from {self.name} as {self._alias} where {where}").collect()
        if found["n"]:
            first()
            self.spark.sql(f"{statement} where {where}")
        return int(found["n"])

    def _call(self, procedure: str, arguments: str = "") -> Row:
        return self._calls(procedure, arguments)[0]

    def _calls(self, procedure: str, arguments: str = "") -> list[Row]:
        return self.spark.sql(f"call system.{procedure}(table => '{self.name}'{', ' if arguments else ''}{arguments})").collect()
