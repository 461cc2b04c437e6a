"""The ledger as MLflow shows it: events of a growing log -> intended writes. Pure; the rows are written elsewhere.

fold.py          takes in each event, asks the files below what MLflow is to be told, and says what stands on shelves
projected.py     one run on its way into MLflow: its fold (marin/history/fold.py), and what was told of it
experiments.py   experiments, their registrations and reports
lifecycle.py     beginnings and ends of runs and graphs
steps.py         steps, their metrics and data sets
training.py      the curve, checkpoints, evaluation, models
verdicts.py      what verifications said; aliases.py: which model of a name was verified
logged.py        what users log by plain MLflow
intents.py       the vocabulary of intended writes
"""
