"""The rules in the seeds: read, checked, explained."""
