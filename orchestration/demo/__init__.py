"""The demo, with its own Kafka broker."""
