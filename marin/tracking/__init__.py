"""Projections for people: what the ledger holds, as MLflow runs and as HTML pages.

Nothing in here is evidence. Everything is folded from verified events, lives below ``projections/`` in the root, and may
be deleted at any time: the next ``marin sync`` or ``marin ui`` folds it again and answers every query as before.

    record.py      what is known of one run, built up event by event (pure)
    intents.py     the vocabulary of intended MLflow writes (pure)
    fold.py        events -> intents (pure)
    identity.py    MLflow's identifiers and times, derived from the ledger instead of drawn
    sink.py        intents -> an MLflow database, through MLflow's own stores
    shelf.py       which artifacts and pages an MLflow run shows
    curve.py page.py lineage.py   the pages themselves
    projection.py  cursor, catching up, rebuilding, following a growing log
    repository.py  ``marin://`` for MLflow: verified reads from the store
    server.py      MLflow's own server over all this
"""
