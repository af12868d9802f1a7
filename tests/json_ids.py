"""Ids of sequences in JSON payloads, at $.id: a reporter must name them as the SQL does."""

from __future__ import annotations

JSON_IDS: list[tuple[str, str | None]] = [
    ('\ufeff{"id": "A"}', None),
    ('{"id": 12345678.0}', "1.2345678E7"),
    ('{"id": 1234567.50}', "1234567.5"),
    ('{"id": 0.001}', "0.001"),
    ('{"id": -1e-4}', "-1.0E-4"),
    ('{"id": 1e100}', "1.0E100"),
    ('{"id": 0.0}', "0.0"),
    ('{"id": 100.0}', "100.0"),
    ('{"id": 123456789012345678901234567890}', "123456789012345678901234567890"),
    ('{"id": "A", "id": "B"}', "A"),
    ('{"id": null, "id": "B"}', "B"),
    (' {"id": "A"} x', "A"),
    ('{"id": true}', "true"),
    ('{"id": NaN}', None),
    ('{"id": [1.50, {"a": "x"}]}', '[1.5,{"a":"x"}]'),
    ('{"id": "A"', None),
]
