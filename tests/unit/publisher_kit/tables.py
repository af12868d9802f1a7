"""The table of publish errors that the project ships: tests use the rules that users get."""

from __future__ import annotations

import csv
from pathlib import Path

from publisher import error_kinds_from_rows

SEED = Path(__file__).parents[3] / "dbt_project" / "seeds" / "publish_error_kinds.csv"

with SEED.open(newline="") as _rows:
    ERROR_KINDS = error_kinds_from_rows(csv.DictReader(_rows))
