"""Training loops that are their user's own, in the same log as Marin's runs (docs/loops.md).

loop.py      ``marin.start_run``: a run that records what a loop tells it
tensors.py   the tensors of a state, whichever library made them
levanter.py  a tracker for Levanter's trainer
trainer.py   a callback for Hugging Face's trainer
"""
