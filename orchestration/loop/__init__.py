"""The loop: what a tick does, step by step, and what it keeps."""
