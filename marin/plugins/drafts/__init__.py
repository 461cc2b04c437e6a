"""Tokens that are proposed with a cache of keys and values, many at once. A forward pass decides which of them are said.

forward.py   Levanter's models with keys and values of earlier positions, in whatever order of sums is fast
proposals.py which sequences have a place in the cache, and the tokens that are proposed to them
plugin.py    what the entry point names
"""
