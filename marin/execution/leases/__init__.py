"""Who executes a step: claims as events of the ledger, and the claim of a process that executes one step."""
