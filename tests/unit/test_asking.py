"""Who asks a loop that is frozen. Its connections are made by the operating system, and tell nothing. The rest: test_answers."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestration.answers import asking
from orchestration.answers.asking import Asking
from orchestration.answers.conversation import directory_of
from orchestration.settings import load_settings


def test_a_frozen_loop_that_many_have_asked_keeps_nobody_waiting_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_FROZEN_SECONDS", 1.0)
    monkeypatch.setattr(asking, "_has_engine", lambda: False)
    monkeypatch.setattr(asking, "subject_of", lambda *_: SimpleNamespace(missing=lambda: "answered here"))
    directory_of(tmp_path).mkdir()
    told: list[str] = []
    with socket.socket(socket.AF_UNIX) as frozen:
        frozen.bind(str(directory_of(tmp_path) / "7.sock"))
        frozen.listen(1)
        for _ in range(4):
            assert Asking(load_settings(home=tmp_path), told.append).tables.missing() == "answered here"
    assert set(told) == {"the running loop doesn't answer"}
