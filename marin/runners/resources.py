"""What a job needs of a machine while it runs."""

from __future__ import annotations

from dataclasses import dataclass

from marin.errors import UsageError


@dataclass(frozen=True)
class Resources:
    """What one job needs while it runs. ``memory`` in bytes, 0 for "not asked for". ``tpus`` are chips of one host;
    ``accelerator_type`` (``TPU-V6E``, ``H100``) and ``topology`` (``4x4``) name what kind and, for TPUs, which
    slice."""

    cpus: float = 1.0
    gpus: float = 0.0
    memory: int = 0
    tpus: int = 0
    accelerator_type: str = ""
    topology: str = ""

    def __post_init__(self) -> None:
        if min(self.cpus, self.gpus, self.memory, self.tpus) < 0:
            raise UsageError(
                "a resource is negative",
                where="resources",
                expected="0 or more",
                found=repr(self),
                cure="ask for what the step needs",
            )
