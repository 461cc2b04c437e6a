"""From a plan to its results: what to execute, in which folder, what to record."""
