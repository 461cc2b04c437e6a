"""MLflow's ports over the ledger: reading is the projection's, writing makes events.

tracking.py    experiments, runs, metrics
registry.py    registered models
repository.py  artifacts: verified reads from the store, writes through it
recorder.py    what all three write events by
"""
