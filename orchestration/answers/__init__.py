"""A running loop answers questions about its home, so that a command needs no engine of its own."""
