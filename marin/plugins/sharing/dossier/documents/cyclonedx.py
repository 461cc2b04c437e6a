"""The model and its data as a CycloneDX 1.6 bill of materials, with the formulation: each step as a task of one workflow.

cyclonedx-python-lib's strict schema judges it in `make foreign`.
"""

from __future__ import annotations

import uuid
from typing import Any

from marin.plugins.sharing.dossier.facts import Entry, Subject

FILE = "cyclonedx.json"
_TASKS = {
    "corpus": "copy",
    "tokenizer": "build",
    "tokens": "build",
    "train": "build",
    "evaluate": "test",
    "export": "release",
}


def bill(subject: Subject) -> dict[str, Any]:
    """The bill of materials."""
    model = subject["model.digest"]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'urn:marin:{model}:{subject.proven.checkpoint.size}')}",
        "version": 1,
        "metadata": {
            "timestamp": subject["run.began"],
            "component": {
                "type": "machine-learning-model",
                "bom-ref": "model",
                "name": subject.title,
                "version": model,
                "supplier": {"name": subject["provider.name"]},
                **_licences(subject["model.licence"]),
                "modelCard": _card(subject),
            },
        },
        "components": [
            {
                "type": "data",
                "bom-ref": "data",
                "name": subject["data.name"],
                "version": subject["data.corpus"],
                **_licences(subject["data.licence"]),
                "data": [{"type": "dataset", "name": subject["data.name"], "description": subject["data.description"]}],
            },
            *(
                {
                    "type": "file",
                    "bom-ref": f"file:{path}",
                    "name": path,
                    "hashes": [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}],
                }
                for path, digest, _ in subject.files.get("export", ())
            ),
        ],
        "dependencies": [
            {"ref": "model", "dependsOn": ["data", *(f"file:{path}" for path, _, _ in subject.files.get("export", ()))]}
        ],
        "formulation": [{"bom-ref": "formula", "workflows": [_workflow(subject)]}],
    }


def _licences(told: Entry) -> dict[str, Any]:
    """By name: an identifier that SPDX does not have would be refused, and a provider may state any text."""
    return {"licenses": [{"license": {"name": told}}]} if told.source == "stated" else {}


def _card(subject: Subject) -> dict[str, Any]:
    metrics = [
        {
            "type": told.name.removeprefix("evaluation."),
            "value": Entry(told.name, repr(told.value), told.source, told.events),
        }
        for told in subject.named("evaluation.")
    ]
    return {
        "modelParameters": {
            "task": "text-generation",
            "architectureFamily": "transformer",
            "modelArchitecture": subject["model.architecture"],
            "datasets": [{"ref": "data"}],
            "inputs": [{"format": subject["model.modality"]}],
            "outputs": [{"format": subject["model.modality"]}],
        },
        **({"quantitativeAnalysis": {"performanceMetrics": metrics}} if metrics else {}),
        "considerations": {
            "useCases": [subject["model.intended_use"]],
            "technicalLimitations": [subject["model.limitations"]],
            "ethicalConsiderations": [{"name": subject["data.biases"]}],
        },
    }


def _workflow(subject: Subject) -> dict[str, Any]:
    tasks = []
    for name, step in subject.run.steps.items():
        at = (step.completed_at,)
        tasks.append(
            {
                "bom-ref": f"task:{name}",
                "uid": Entry(f"step.{name}.identity", step.identity, "recorded", at),
                "name": name,
                "taskTypes": [_TASKS.get(name, "other")],
                "inputs": [
                    _data(key, Entry(f"step.{name}.input.{key}", value, "recorded", at))
                    for key, value in sorted(step.inputs.items())
                ],
                "outputs": [_data(name, Entry(f"step.{name}.output", step.output.digest, "recorded", at))],
            }
        )
    for task in tasks:
        if not task["inputs"]:
            del task["inputs"]
    return {
        "bom-ref": "workflow",
        "uid": subject["run.plan"],
        "name": subject["run.id"],
        "taskTypes": ["build"],
        "tasks": tasks,
        "timeStart": subject["run.began"],
        **({"timeEnd": subject["run.ended"]} if "run.ended" in subject.values else {}),
    }


def _data(name: str, digest: Entry) -> dict[str, Any]:
    return {"environmentVars": [{"name": name, "value": digest}]}
