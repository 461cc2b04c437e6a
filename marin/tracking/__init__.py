"""Projections for people: what the ledger holds, as MLflow runs and as HTML pages.

Nothing in here is evidence. Everything is folded from verified events, lives in the user's cache, and
may be deleted at any time: the next ``marin sync`` or ``marin ui`` folds it again and answers every query as before.

    record.py      what is known of one run, built up event by event (pure)
    intents.py     the vocabulary of intended MLflow writes (pure)
    fold.py        events -> intents (pure); logged.py: those of what users log by plain MLflow
    identity.py    MLflow's identifiers, derived from the ledger instead of drawn
    database.py    MLflow's database: made by MLflow, its version and columns checked
    sink.py        intents -> rows, one transaction a round
    projection.py  cursor, catching up, rebuilding, following a growing log
    shelf.py       which artifacts and pages an MLflow run shows
    reading.py     one run, read from the ledger for its pages
    pages.py       pages by name: page.py lineage.py order.py curve.py draw them, markup.py escapes
    repository.py  ``marin://`` for MLflow: verified reads from the store, writes through it
    server.py      MLflow's own server over all this
"""
