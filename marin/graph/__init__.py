"""The door of the graph: what an experiment file imports.

An experiment is a Python file that holds steps as values (:mod:`marin.graph.step`). `marin run` makes a graph of them
(:mod:`marin.graph.graph`), asks the ledger which have their output already (:mod:`marin.graph.planning`), and executes
the rest (:mod:`marin.graph.execution.loop`).
"""

from marin.graph.step import Adopted, Context, Input, Ref, Resources, Result, Step, adopt, override_output, unidentified

__all__ = [
    "Adopted",
    "Context",
    "Input",
    "Ref",
    "Resources",
    "Result",
    "Step",
    "adopt",
    "override_output",
    "unidentified",
]
