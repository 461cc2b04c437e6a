"""The judges: one module for each of the five verdicts; workers.py executes training again for one of them."""
