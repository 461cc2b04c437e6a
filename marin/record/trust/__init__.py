"""Whose word counts, and what was seen of logs before: trusted keys, pins, witnesses, time stamps, Git's anchors."""
