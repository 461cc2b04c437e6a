"""Runs held against each other: a sweep, an experiment, or any that somebody names."""
