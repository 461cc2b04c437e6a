"""What a reservation is to a Ray, and that no worker waits for what no machine has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from ledger import Unavailable
from marin.plugins.ray.cluster import connect
from marin.plugins.ray.resources import check, options
from marin.runners.resources import Resources

SLICE = Resources(1, memory=2**30, tpus=4, accelerator_type="TPU-V6E", topology="4x4")


def cluster(**amounts: float) -> SimpleNamespace:
    return SimpleNamespace(cluster_resources=lambda: amounts, nodes=list)


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


SLICE_HERE = """
import json, sys
import ray
from ledger import Unavailable
from marin.runners.resources import Resources
from marin.plugins.ray.resources import check, options

ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 << 20, log_to_driver=False,
         resources={"TPU": 4, "accelerator_type:TPU-V6E": 1}, labels={"ray.io/tpu-topology": "4x4"})
here = Resources(1, tpus=4, accelerator_type="TPU-V6E", topology="4x4")
check(ray, here, where="a slice")

@ray.remote
def place():
    return dict(ray.get_runtime_context().get_assigned_resources())

told = {"assigned": ray.get(place.options(**options(here)).remote(), timeout=120), "refused": []}
for other in (Resources(1, tpus=8), Resources(1, tpus=4, topology="8x8"), Resources(1, tpus=1, accelerator_type="TPU-V5P")):
    try:
        check(ray, other, where="a slice")
    except Unavailable as error:
        told["refused"].append(str(error))
json.dump(told, sys.stdout)
"""


@pytest.mark.survival
def test_a_ray_that_has_tpus_gives_them_and_no_other_slice_is_waited_for() -> None:
    """A Ray of this machine that says it is one of a slice: what is reserved is what Ray hands out."""
    quiet = os.environ | {"RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run([sys.executable, "-c", SLICE_HERE], env=quiet, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["assigned"]["TPU"] == 4 and told["assigned"]["CPU"] == 1
    tpus, topology, kind = told["refused"]
    assert "expected 8 TPU, found 4 TPU" in tpus
    assert "expected ray.io/tpu-topology=8x8, found 4x4" in topology
    assert "accelerator_type:TPU-V5P" in kind


def test_a_program_that_is_connected_to_a_ray_by_itself_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(os.environ)
    monkeypatch.setattr("marin.plugins.ray.cluster.import_ray", lambda: SimpleNamespace(is_initialized=lambda: True))
    with pytest.raises(Unavailable, match="connected to a Ray already"), connect(None, cpus=1):
        raise AssertionError("it was begun")
    assert os.environ == before
