"""Replay: execute again what a run recorded, compare, and judge.

``compare`` is pure; ``verify`` gathers the five verdicts; ``rehearsal`` executes steps without recording them;
``training`` (in :mod:`marin.verify.jax.replay`) is the only part that needs jax.
"""
