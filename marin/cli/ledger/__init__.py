"""`marin ledger`: the log itself, its keys, its services, its witnesses and anchors."""
