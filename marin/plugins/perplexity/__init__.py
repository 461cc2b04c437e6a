"""Perplexity of a text of the user's own, as an evaluation that anybody can check: ``marin eval RUN --text FILE``."""
