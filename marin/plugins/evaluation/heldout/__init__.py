"""Held-out text: which sets a recipe names, what they measure, and when during a training."""
