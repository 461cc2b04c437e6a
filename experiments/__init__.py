"""Experiments: files that take no arguments and say what is to be done, as values. `marin run experiments/FILE.py` does
it."""
