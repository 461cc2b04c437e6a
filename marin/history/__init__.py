"""The ledger read back: runs, results and artifacts as folds of events."""
