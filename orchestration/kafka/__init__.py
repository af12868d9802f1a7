"""What is asked of Kafka, beside sending."""
