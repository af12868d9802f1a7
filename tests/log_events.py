"""What was logged, as events: names and fields, not texts."""

from __future__ import annotations

from typing import Any

import pytest

from orchestration.logs import Event


def logged(caplog: pytest.LogCaptureFixture, name: str) -> list[dict[str, Any]]:
    """The fields of each event of a name that was captured, as they are written."""
    events = [record.msg for record in caplog.records if isinstance(record.msg, Event)]
    return [dict(event.cleaned()) for event in events if event.name == name]
