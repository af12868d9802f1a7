"""Cells of seeds that say where in a message something is: `key`, the name of a header, or a path into a JSON payload."""

from __future__ import annotations


def json_path(value: str) -> str | None:
    """What is wrong with a path that may be empty."""
    return None if not value or value.startswith(("$.", "$[")) else "must be a path in JSON: $.name, or $['name']"


def places(value: str) -> str | None:
    """What is wrong with a list of headers and paths."""
    wrong = [place for place in value.split() if place.startswith("$") and json_path(place)]
    return f"{wrong[0]} is no path: $.name, or $['name']; a header is given by its name alone" if wrong else None


def one_place(value: str) -> str | None:
    """What is wrong with the place of a sequence's id. Consumers would refuse a path that may lead to several."""
    if " " in value:
        return "must be one place: key, a header's name, or a path"
    if not value.startswith("$"):
        return None
    # imported here: commands that ask a running loop import no client of Kafka's
    from reporter.sequence_ids import check_place

    try:
        check_place(value)
    except ValueError as error:
        return f"{error}; a header is given by its name alone"
    return None
