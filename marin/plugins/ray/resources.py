"""What a piece of work reserves (:class:`marin.runners.jobs.Resources`), in the words of Ray's tasks and actors."""

from __future__ import annotations

from typing import Any

from ledger import Unavailable
from marin.runners.resources import Resources

TOPOLOGY = "ray.io/tpu-topology"
"""The label that Ray gives to the machines of a TPU slice."""


def options(needs: Resources) -> dict[str, Any]:
    """What ``.options()`` of a task or an actor takes."""
    found: dict[str, Any] = {"num_cpus": needs.cpus, "num_gpus": needs.gpus}
    if needs.memory:
        found["memory"] = needs.memory
    if needs.accelerator_type:
        found["accelerator_type"] = needs.accelerator_type
    if needs.tpus:
        found["resources"] = {"TPU": needs.tpus}
    if needs.topology:
        found["label_selector"] = {TOPOLOGY: needs.topology}
    return found


def check(ray: Any, needs: Resources, *, where: str, count: int = 1) -> None:
    """Refuse what a connected Ray can never give to ``count`` at the same time: it would wait for ever.

    Raises:
        Unavailable: the cluster has less, no matter who uses it now.
    """
    total = ray.cluster_resources()
    amounts = {"CPU": needs.cpus, "GPU": needs.gpus, "memory": float(needs.memory), "TPU": float(needs.tpus)}
    wanted = {name: amount * count for name, amount in amounts.items()}
    if needs.accelerator_type:
        wanted[f"accelerator_type:{needs.accelerator_type}"] = 0.001  # what Ray itself asks of it
    lacking = {name: amount for name, amount in wanted.items() if amount > total.get(name, 0.0)}
    if lacking:
        raise Unavailable(
            "a job needs more than the cluster has",
            where=where,
            expected=", ".join(f"{amount:g} {name}" for name, amount in lacking.items()),
            found=", ".join(f"{total.get(name, 0.0):g} {name}" for name in lacking),
            cure="ask for less, or add machines (docs/cluster.md)",
        )
    topologies = {node["Labels"].get(TOPOLOGY) for node in ray.nodes() if node["Alive"]} - {None}
    if needs.topology and needs.topology not in topologies:
        raise Unavailable(
            "no machine of the cluster is of this slice",
            where=where,
            expected=f"{TOPOLOGY}={needs.topology}",
            found=", ".join(sorted(topologies)) or "none with that label",
            cure="name a topology that is there, or add such a slice (docs/cluster.md)",
        )
