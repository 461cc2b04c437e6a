"""The page of a verification: page.py draws a report, recorded.py the newest one that the ledger has."""
