"""Experiments as claims that can fail: what was run of what was said beforehand, and what the numbers bear out.

statistics     comparisons of arms over seeds
analysis       the runs of an experiment held against its registration, with every deviation; report draws it
speedrun       a track that others enter with runs of their own, each replayed first; leaderboard draws it
conventions/   what an experiment file must hold, and whether it says the same wherever it is loaded
"""
