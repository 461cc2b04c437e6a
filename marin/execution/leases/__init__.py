"""Who executes a step: leases as events of the ledger, and who holds them."""
