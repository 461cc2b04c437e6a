"""Exact unlearning: a run that is what training would have made of everything but some documents."""
