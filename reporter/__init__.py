"""A Kafka consumer that reports what it can't process to redrive, and keeps the order of sequences.

It depends on confluent-kafka only. docs/sequences.md has the protocol, for other languages too.
"""

from reporter.consumer import NotAlignedError, ReportingConsumer, Topics
from reporter.reports import Place, PreviousMessageWasRecovered, Report, Reporter, header, message_id

__all__ = [
    "NotAlignedError",
    "Place",
    "PreviousMessageWasRecovered",
    "Report",
    "Reporter",
    "ReportingConsumer",
    "Topics",
    "header",
    "message_id",
]
