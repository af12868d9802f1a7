"""Code that a user of redrive writes: plain Kafka clients that do not import redrive."""
