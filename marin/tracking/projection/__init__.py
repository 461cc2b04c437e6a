"""The ledger folded into MLflow's database."""
