"""Which tests share a worker: those that share a broker, a loop, or a Spark session, as these are dear to start."""

from __future__ import annotations

from pathlib import Path

import pytest

_SHARING = ("dagster", "dbt", "loop")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups the tests of a folder with something to share; the others by file. First, as pytest-xdist reads the marks in its own hook."""
    here = Path(__file__).parent
    for item in items:
        folder, *rest = item.path.relative_to(here).parts
        item.add_marker(pytest.mark.xdist_group(folder if folder in _SHARING else "/".join([folder, *rest])))
