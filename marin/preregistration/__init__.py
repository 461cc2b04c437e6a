"""Experiments as claims that can fail: what is said beforehand. Whether the runs bear it out is the plugin lab's.

registration   what an experiment file states and the ledger keeps before any run
arms           which arm of which registration a run is
resolution     how small a p-value so few seeds can give
searching      a search, whose every trial is an arm
"""
