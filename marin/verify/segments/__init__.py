"""Training as segments: which are replayed, and how they compare."""
