"""What comes in, and what must be decided about it: the tables of test_decide_cases.py. Each case has its own topics."""
