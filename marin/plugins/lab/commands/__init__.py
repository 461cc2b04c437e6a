"""Commands of experiments and tracks."""
