"""The judges: one module for each of the five verdicts."""
