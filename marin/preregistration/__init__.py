"""Experiments as claims that can fail: what was said beforehand, what was run, and what the numbers bear out.

registration   what an experiment file states and the ledger keeps before any run
resolution     how small a p-value so few seeds can give
statistics     comparisons of arms over seeds
analysis       the runs of an experiment held against its registration, with every deviation; marin/reporting draws it
searching      a search, whose every trial is an arm
speedrun       a track that others enter with runs of their own, each replayed first
"""
