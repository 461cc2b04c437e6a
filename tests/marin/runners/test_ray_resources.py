"""What a reservation is to a Ray, and that no worker waits for what no machine has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ledger import Unavailable
from marin.runners.jobs import Resources
from marin.runners.ray.resources import check, options

SLICE = Resources(1, memory=2**30, tpus=4, accelerator_type="TPU-V6E", topology="4x4")


def cluster(**amounts: float) -> SimpleNamespace:
    return SimpleNamespace(cluster_resources=lambda: amounts)


def test_a_reservation_names_machine_and_slice() -> None:
    assert options(SLICE) == {
        "num_cpus": 1,
        "num_gpus": 0.0,
        "memory": 2**30,
        "accelerator_type": "TPU-V6E",
        "resources": {"TPU": 4},
        "label_selector": {"ray.io/tpu-topology": "4x4"},
    }
    assert options(Resources(2, gpus=0.5)) == {"num_cpus": 2, "num_gpus": 0.5}


@pytest.mark.parametrize(("gpus", "lacking"), [(8, ""), (7, "expected 8 GPU, found 7 GPU")])
def test_workers_that_could_never_start_are_refused(gpus: float, lacking: str) -> None:
    eight = cluster(CPU=8.0, GPU=float(gpus))
    if not lacking:
        check(eight, Resources(1, gpus=2), where="4 worker(s)", count=4)
        return
    with pytest.raises(Unavailable, match=lacking):
        check(eight, Resources(1, gpus=2), where="4 worker(s)", count=4)
