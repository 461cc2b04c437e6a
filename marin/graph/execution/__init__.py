"""Executing what a graph has not yet: leases, processes, records. The loop is in :mod:`marin.graph.execution.loop`."""
