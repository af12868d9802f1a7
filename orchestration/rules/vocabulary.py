"""The words that seeds are written in.

Dialects and kinds of errors are vars of dbt_project.yml, which the SQL reads, too. The other words stand in macros, and are compared with
them by tests/unit/test_vocabulary.py.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from orchestration.settings.sources import installed_project

# of the program's own project: a directory that `project` names must be one of this version
_VARS: Final[dict[str, Any]] = yaml.safe_load((installed_project() / "dbt_project.yml").read_text(encoding="utf-8"))["vars"]

DIALECTS: Final[tuple[str, ...]] = tuple(_VARS["dialects"])
ERROR_KINDS: Final[tuple[str, ...]] = tuple(_VARS["error_kinds"])
PUBLISH_KINDS: Final = tuple(kind for kind in ERROR_KINDS if kind != "blocking")
"""What an error of Kafka's may be: only an application says that everything must wait."""
OTHER_KIND_WORDS: Final[tuple[str, ...]] = tuple(word for words in _VARS["error_kinds"].values() for word in words)
"""What other vocabularies call the kinds."""
KIND_PRECEDENCE: Final[tuple[str, ...]] = tuple(_VARS["error_kind_precedence"])
"""Of rules that are equal but for their kind, which one decides."""
HEADER_PROFILES: Final = ("dlq", "safi", "spring", "connect")
"""Which headers say on a dead letter why it died: the macro dead_letter_header_names has what belongs to each; `+stack` may follow."""
NO_TOPIC: Final = "none"
"""What stands for a dead letter topic where messages that die are parked: as the macro no_topic has it."""
EVERYTHING: Final = "everything"
"""The privacy that keeps and shows all, and needs no row: the model privacy_read adds it."""
CONCERNS: Final = ("record", "topic", "connection")
"""What an error of Kafka's may concern: as publisher/errors.py reads them."""
TOPIC_PLACEHOLDERS: Final = ("topic", "group", "kind")
"""What may stand in the template of a destination: as the macro topic_from_template has them."""
LINK_PLACEHOLDERS: Final = (
    *("message_id", "topic", "partition", "offset", "group", "class", "request_id", "process_id", "trace_id"),
    *("time", "time_ms", "from", "from_ms", "to", "to_ms"),
)
"""What may stand in a link's template: as the macro link_placeholders has them."""
