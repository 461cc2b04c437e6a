"""MLflow's database as a projection of the ledger.

follow.py      cursor, catching up, rebuilding, following a growing log
database.py    MLflow's database: made by MLflow, its version and columns checked
sink.py        intents -> rows, one transaction a round
shelf.py       which artifacts and pages an MLflow run shows
"""
