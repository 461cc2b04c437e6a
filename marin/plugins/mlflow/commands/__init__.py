"""Commands that show the ledger by MLflow."""
