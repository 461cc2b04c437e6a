"""Replay: execute again what a run recorded, compare, and judge.

``compare`` is pure; ``verify`` gathers the five verdicts; ``sandbox`` executes steps without recording them;
``training`` (in :mod:`marin.training.replay`) is the only part that needs jax.
"""
