"""The cluster file for Kubernetes, judged by the schema that the KubeRay operator publishes for it (v1.7.0).

An API server prunes fields that a structural schema does not have, without a word: here they are refused, so that a
misspelled one is found.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import judges
import pytest
import yaml
from jsonschema import Draft202012Validator

FILE = Path(__file__).resolve().parents[2] / "conf" / "cluster" / "tpu.yaml"
KEPT = "x-kubernetes-preserve-unknown-fields"


def strict(schema: Any) -> Any:
    """The schema without fields that it does not name."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get(KEPT) and "additionalProperties" not in schema:
        found["additionalProperties"] = False
    if schema.get("nullable") and isinstance(schema.get("type"), str):
        found["type"] = [schema["type"], "null"]
    return found


@pytest.fixture(scope="module")
def errors() -> Callable[[Any], list[str]]:
    """What the operator's schema says against a cluster."""
    try:
        folder = judges.room("kuberay")
    except judges.Absent as reason:
        pytest.skip(f"the schema of KubeRay cannot be had here: {reason}")
    (path,) = folder.rglob("ray.io_rayclusters.yaml")
    crd = yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    (schema,) = [version["schema"]["openAPIV3Schema"] for version in crd["spec"]["versions"] if version["name"] == "v1"]
    schema["properties"]["metadata"] = {"type": "object", KEPT: True}  # the API server's own
    validator = Draft202012Validator(strict(schema))
    return lambda cluster: [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(cluster)]


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    (cluster,) = yaml.safe_load_all(FILE.read_text(encoding="utf-8"))
    made: dict[str, Any] = copy.deepcopy(cluster)
    change(made["spec"])
    return made


WRONG: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no head": (lambda spec: spec.pop("headGroupSpec"), "headGroupSpec"),
    "a misspelled field": (lambda spec: spec["workerGroupSpecs"][0].update(numOfHost=4), "numOfHost"),
    "hosts as text": (lambda spec: spec["workerGroupSpecs"][0].update(numOfHosts="4"), "numOfHosts"),
    "a group without a name": (lambda spec: spec["workerGroupSpecs"][0].pop("groupName"), "groupName"),
    "a number where Ray wants text": (
        lambda spec: spec["headGroupSpec"]["rayStartParams"].update(x=0),
        "rayStartParams",
    ),
    "no containers": (lambda spec: spec["headGroupSpec"]["template"]["spec"].pop("containers"), "containers"),
}


def test_the_cluster_is_what_the_operator_takes(errors: Callable[[Any], list[str]], judge: Any) -> None:
    kuberay = judge("KubeRay's schema", "1.7.0")
    assert errors(changed(lambda spec: None)) == []
    kuberay.accepts("conf/cluster/tpu.yaml")
    for name, (change, named) in WRONG.items():
        found = errors(changed(change))
        assert found and named in " ".join(found), (name, found)
        kuberay.refuses(f"{name} in it")
