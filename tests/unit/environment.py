"""Settings in the environment."""

from __future__ import annotations

from collections.abc import Mapping

import pytest


def set_all(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
