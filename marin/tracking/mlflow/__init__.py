"""MLflow over the ledger: a database that is folded from it, and ``marin://`` for reading and for recording.

database.py    MLflow's database: made by MLflow, its version and columns checked
sink.py        intents -> rows, one transaction a round
projection.py  cursor, catching up, rebuilding, following a growing log
shelf.py       which artifacts and pages an MLflow run shows
repository.py  verified reads from the store, writes through it
server.py      MLflow's own server over all this
"""
