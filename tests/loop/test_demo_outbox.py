"""The demo of an outbox as a user runs it in a clone, and once more on the state that it has left. The other demo: test_package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.loop.outbox_kit import needs_postgres

pytestmark = [pytest.mark.slow, needs_postgres]


def demo(project: Path, home: Path) -> str:
    """What the demo says; the results of the queries begin with their own lines."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")}
    command = [str(Path(sys.executable).with_name("redrive")), "demo", "--outbox", "--seconds", "40", "--home", str(home)]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return " ".join(done.stdout.split())


def test_the_demo_of_an_outbox_ends_well_also_on_the_state_of_the_one_before(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    for _ in range(2):
        said = demo(pytestconfig.rootpath, tmp_path / "home")
        assert "lost 0, early 0, twice 0" in said
        # topic, status, rows
        assert re.search(r"orders done \d+ .*orders\.archive done \d+ .*orders\.small dead \d+ ", said), said[-3000:]
