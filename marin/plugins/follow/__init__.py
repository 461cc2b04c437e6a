"""Verification of a run while its training goes on: `marin verify RUN --follow`."""
