"""The files that `redrive init` writes: those that a user edits, and a dbt project that refers to the installed SQL."""
