"""The system description of a submission to MLPerf training: what the record says of the machine, and what only its owner
can say.

The fields are those that MLPerf's ``system_desc_checker`` requires, all of them text. What a run recorded (processor, cores,
devices, operating system, software) is taken from its events and cannot be said otherwise; of a machine without accelerators
their fields are ``N/A``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marin.errors import UsageError
from marin.history.run import Run
from marin.plugins.mlperf.benchmark import Submission

HOST = (
    "host_processors_per_node",
    "host_processor_model_name",
    "host_processor_core_count",
    "host_processor_vcpu_count",
    "host_processor_frequency",
    "host_processor_caches",
    "host_processor_interconnect",
    "host_memory_capacity",
    "host_storage_type",
    "host_storage_capacity",
    "host_networking",
    "host_networking_topology",
    "host_memory_configuration",
)
ACCELERATOR = (
    "accelerators_per_node",
    "accelerator_model_name",
    "accelerator_host_interconnect",
    "accelerator_frequency",
    "accelerator_on-chip_memories",
    "accelerator_memory_configuration",
    "accelerator_memory_capacity",
    "accelerator_interconnect",
    "accelerator_interconnect_topology",
)
FIELDS = (
    "submitter",
    "division",
    "status",
    "system_name",
    "number_of_nodes",
    *HOST,
    *ACCELERATOR,
    "cooling",
    "hw_notes",
    "framework",
    "other_software_stack",
    "operating_system",
    "sw_notes",
)
STATUS = {
    "onprem": "Available on-premise",
    "cloud": "Available cloud",
    "research": "Research, Development, or Internal (RDI)",
}
"""Of a log's ``submission_status``, in the words of the system description."""
SOFTWARE = ("marin-haliax", "equinox", "optax", "numpy", "jaxlib")
LONGEST = 2000
"""Bytes of a field."""


def recorded_fields(run: Run, submission: Submission, name: str, origin: str) -> dict[str, str]:
    """The fields that follow from the events of ``run``."""
    environment, training = run.started.body.environment, run.training[-1].body
    device, versions = training.device, _section(environment, "versions")
    system, cores, python = (_section(environment, part) for part in ("system", "cores", "python"))
    known = {
        "submitter": submission.org or origin,
        "division": submission.division,
        "status": STATUS[submission.status],
        "system_name": name,
        "number_of_nodes": str(training.processes),
        "host_processor_model_name": str(_section(environment, "processor").get("model", "")),
        "host_processor_vcpu_count": str(cores.get("machine", "")),
        "framework": f"Levanter {versions.get('marin-levanter', '')}, JAX {versions.get('jax', '')}",
        "operating_system": " ".join(str(system.get(part, "")) for part in ("name", "release", "libc")).strip(),
        "other_software_stack": ", ".join(
            [f"Python {python.get('version', '')}", *(f"{one} {versions[one]}" for one in SOFTWARE if one in versions)]
        ),
    }
    if device.get("platform") == "cpu":
        return known | dict.fromkeys(ACCELERATOR, "N/A") | {"accelerators_per_node": "0"}
    each = training.devices // max(1, training.processes)
    return known | {"accelerators_per_node": str(each), "accelerator_model_name": str(device.get("kind", ""))}


def _section(environment: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = environment.get(name)
    return found if isinstance(found, dict) else {}


def system_fields(known: Mapping[str, str], stated: Mapping[str, str], *, where: str) -> dict[str, str]:
    """All fields, in MLPerf's order.

    Raises:
        UsageError: a field is not said by anyone, or said otherwise than it was recorded.
    """
    for name, value in stated.items():
        if value and known.get(name) not in (None, "", value):
            raise UsageError(
                "the system is described otherwise than it was recorded",
                where=f"{where}: {name}",
                expected=known[name],
                found=value,
                cure="leave the field out: it is taken from the run",
            )
    whole = {name: known.get(name) or stated.get(name, "") for name in FIELDS}
    if lacking := [name for name, value in whole.items() if not value.strip()]:
        raise UsageError(
            "the system is not described",
            where=where,
            expected="a text for each of " + ", ".join(lacking),
            found="none",
            cure="`marin mlperf system > system.json` writes the form; N/A says that there is none of it",
        )
    return whole


def form(known: Mapping[str, str]) -> dict[str, str]:
    """What is left to say, to be filled in."""
    return {name: "" for name in FIELDS if not known.get(name)}


def stated_in(file: Path | None) -> dict[str, str]:
    """The fields in a JSON file of texts.

    Raises:
        UsageError: it is not such a file, or has a field that there is not.
    """
    if file is None:
        return {}
    try:
        found = json.loads(file.read_text("utf-8"))
        assert isinstance(found, dict)
        assert all(isinstance(value, str) and len(value.encode()) <= LONGEST for value in found.values())
    except (OSError, ValueError, AssertionError, RecursionError) as error:
        raise UsageError(
            "the description of a system cannot be read",
            where=str(file),
            expected=f"a JSON object of texts, {LONGEST} bytes each at most",
            found=str(error)[:200] or "something else",
            cure="`marin mlperf system > system.json` writes the form",
        ) from None
    if unknown := sorted(found.keys() - set(FIELDS)):
        raise UsageError(
            "a field that a system description does not have",
            where=str(file),
            expected=", ".join(FIELDS),
            found=", ".join(unknown)[:200],
            cure="leave it out",
        )
    return found
