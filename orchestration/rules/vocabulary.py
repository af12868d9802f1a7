"""The words that seeds are written in. The SQL has its own definitions, in macros and in the vars of dbt_project.yml: change both."""

from __future__ import annotations

DIALECTS = ("redrive", "spring")
PUBLISH_KINDS = ("retriable", "fatal", "poison", "backpressure", "quota", "fenced")
ERROR_KINDS = (*PUBLISH_KINDS, "blocking")
OTHER_KIND_WORDS = (
    *("NRE", "SLE", "SNBE", "SBE"),
    *("transient", "non-transient", "recoverable", "not recoverable", "unrecoverable"),
)
"""What other vocabularies call the kinds: the macro error_kinds says which is which."""
KIND_PRECEDENCE = ("fatal", "poison", "retriable", "quota", "backpressure", "fenced", "blocking")
"""Of rules that are equal but for their kind, which one decides: as the macro error_kinds has them."""
HEADER_PROFILES = ("dlq", "safi", "spring", "connect")
"""Which headers say on a dead letter why it died: a macro dead_letter_headers_<profile> each; `+stack` may follow."""
NO_TOPIC = "none"
"""What stands for a dead letter topic where messages that die are parked: as the macro no_topic has it."""
EVERYTHING = "everything"
"""The privacy that keeps and shows all, and needs no row."""
CONCERNS = ("record", "topic", "connection")
LINK_PLACEHOLDERS = (
    *("message_id", "topic", "partition", "offset", "group", "class", "request_id", "process_id", "trace_id"),
    *("time", "time_ms", "from", "from_ms", "to", "to_ms"),
)
"""What may stand in a link's template: as the macro link_placeholders has them."""
