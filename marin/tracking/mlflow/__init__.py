"""MLflow's interfaces over the ledger: stores, artifacts, server."""
