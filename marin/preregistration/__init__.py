"""Experiments as claims that can fail: what was said beforehand, what was run, and what the numbers bear out.

registration: what an experiment file states and the ledger keeps before any run. statistics: comparisons of arms over
seeds. analysis: the runs of an experiment held against its registration, with every deviation. report: the same as
text, table, plot and page.
"""
