"""Texts that recorded states continue: ``evaluation.samples`` of a recipe, and ``marin eval RUN --samples FILE``."""
