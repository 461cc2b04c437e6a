"""Whole copies of logs that are kept for others and vouched for: being a mirror, and having one follow a log."""
