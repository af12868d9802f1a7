"""The rules of a benchmark: those of the project, with policies of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

from orchestration.settings import load_settings


def seeds_with_policies(home: Path, **policies: str) -> Path:
    """Copies the project's seeds to `<home>/seeds`, with these retry policies instead of all others: definitions by name."""
    seeds = Path(shutil.copytree(load_settings().seeds, home / "seeds"))
    lines = ["policy,definition", *(f'{name},"{definition}"' for name, definition in policies.items())]
    (seeds / "retry_policies.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return seeds
