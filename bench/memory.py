"""The memory of processes, from Linux's /proc."""

from __future__ import annotations

import os
from pathlib import Path

from orchestration.loop.loop import Loop


def peak_memory_mb(loop: Loop) -> int:
    """The sum of the peaks of this process, in which a loop runs, of Spark, and of all processes that Spark has started."""
    assert loop.spark._jvm is not None
    return peak_mb(int(loop.spark._jvm.java.lang.ProcessHandle.current().pid()), alone=os.getpid())


def peak_mb(process: int, alone: int | None = None) -> int:
    """The sum of the peak resident sizes, in MB, of a process and all its descendants; alone: of one more, without its descendants."""
    peaks: dict[int, tuple[int, int]] = {}
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in path.read_text().splitlines())
        except OSError:
            continue
        peaks[int(path.parent.name)] = (int(fields["PPid"]), int(fields.get("VmHWM", "0 kB").split()[0]))
    family = {process}
    while more := {each for each, (parent, _) in peaks.items() if parent in family} - family:
        family |= more
    return sum(peak for each, (_, peak) in peaks.items() if each in family or each == alone) // 1024
