"""Access to Kafka, except for the publisher's."""
