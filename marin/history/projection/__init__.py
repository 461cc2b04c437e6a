"""What the ledger says of runs, folded for those who show it: pages, MLflow, W&B. Pure but for reading.py.

record.py      what is known of one run, built up event by event
fold.py        events -> records, and intended writes; logged.py: those of what users log by plain MLflow
intents.py     the vocabulary of intended writes
identity.py    MLflow's identifiers, derived from the ledger instead of drawn
reading.py     one run, read from the ledger for its pages
"""
