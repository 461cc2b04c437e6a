"""MLflow over the ledger: a database that is folded from it, and ``marin://`` for reading and for recording.

Nothing in here is evidence. Everything is folded from verified events, lives in the user's cache, and may be deleted at any
time: the next ``marin sync`` or ``marin ui`` folds it again and answers every query as before.

folding/     events of a growing log -> intended writes
projection/  MLflow's database, folded from the ledger and kept up with it; what each run shows beside its numbers
stores/      what MLflow asks: runs, registered models, artifacts; writing makes events
server/      MLflow's own server over all this, behind a gate, as `marin ui` shows it
plugins.py, context.py, dataset_source.py    what MLflow finds by its entry points
"""
