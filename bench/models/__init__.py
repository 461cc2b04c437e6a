"""Trained models evaluated and served, beside others' software."""
