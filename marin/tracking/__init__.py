"""Projections for people: what the ledger holds, as MLflow's runs and as W&B's.

Nothing in here is evidence. Everything is folded from verified events (:mod:`marin.history.projection`), lives in the
user's cache, and may be deleted at any time: the next ``marin sync`` or ``marin ui`` folds it again and answers every
query as before.
"""
