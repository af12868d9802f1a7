"""A running loop answers questions about its home, so that a command need not start Spark."""
