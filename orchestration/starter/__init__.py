"""What `redrive init` writes: the files that a user of an installed redrive edits, and a dbt project that refers to the installed SQL."""
