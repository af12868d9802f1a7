"""A matrix of kills: at each of twelve steps, at random moments, a loop in its own process is killed, in whole or in part.

`python -m tests.kills` does it; what has come is judged by the topics, and by `redrive verify`.
"""
