"""Errors that were raised deep in calls, each the cause of the next."""

from __future__ import annotations


def _fails_deep(calls: int, error: Exception) -> None:
    # two functions in turn: Python writes the same call many times in a row as one
    if calls == 0:
        raise error
    _fails_deeper(calls - 1, error)


def _fails_deeper(calls: int, error: Exception) -> None:
    _fails_deep(calls, error)


def deep_error(calls: int, text: str = "") -> Exception:
    """The last of three errors, each raised after so many calls. text: the end of their messages."""
    error: Exception | None = None
    for number in range(3):
        following = LookupError(f"number {number}{text}")
        following.__cause__ = error
        try:
            _fails_deep(calls, following)
        except LookupError as raised:
            error = raised
    assert error is not None, "each of them is raised"
    return error
