"""Marin: language models whose training anyone can replay bit for bit, recorded in the ledger of the package beside
it."""

__version__ = "0.1.0"
