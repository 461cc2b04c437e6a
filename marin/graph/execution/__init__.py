"""Executing what a graph has not yet: claims, processes, records. The loop is in :mod:`marin.graph.execution.loop`."""
