"""What follows from events and is shown in several places: readable keys and values, and the ids that MLflow knows things by.

identity.py      MLflow's identifiers, derived from the ledger instead of drawn
pages.py         the pages that a run has
text.py          keys, values and names that MLflow takes
"""
