"""Outbox tables of databases: their rows become events, and what became of them is written back."""
