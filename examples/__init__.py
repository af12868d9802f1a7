"""What a user of redrive writes in their own code: plain Kafka clients that know nothing of this repository."""
