"""The fault bench: single faults, drawn at random over fourteen kinds, each put into a small real run and looked for by
full verification. ``python -m tests.adversary.faults`` makes the table in docs/verify.md; one row again: ``--seed S --row N``.
"""
