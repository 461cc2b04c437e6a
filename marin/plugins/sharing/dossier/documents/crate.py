"""The run as a Workflow Run RO-Crate, by the profile for provenance (w3id.org/ro/wfrun/provenance, 0.5).

The workflow is the plan, each step an action with its inputs and its output; roc-validator judges it in `make foreign`.
"""

from __future__ import annotations

from typing import Any

from marin.plugins.sharing.dossier.facts import Entry, Subject

FILE = "ro-crate-metadata.json"
_PROFILES = (
    "https://w3id.org/ro/wfrun/process/0.5",
    "https://w3id.org/ro/wfrun/workflow/0.5",
    "https://w3id.org/ro/wfrun/provenance/0.5",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0",
)


def crate(subject: Subject) -> dict[str, Any]:
    """The metadata of the crate, whose root is the dossier."""
    run, steps = subject.run, subject.run.steps
    name = subject.title
    licence = subject["model.licence"]
    outputs: dict[str, dict[str, Any]] = {}
    actions, tools, stages, controls = [], [], [], []
    # Of each step: its output, the program, its place in the plan, that it was executed, and who had it executed. The profile of
    # workflow runs (Provenance Run Crate) wants each as an entity of its own.
    for position, (step, made) in enumerate(steps.items()):
        at = (made.completed_at,)
        outputs[made.output.digest] = {
            "@id": _output(made.output.digest),
            "@type": "PropertyValue",
            "name": f"{step} of run {run.run}",
            "value": Entry(f"step.{step}.output", made.output.digest, "recorded", at),
            "exampleOfWork": {"@id": f"#parameter-{step}"},
        }
        for digest in made.inputs.values():
            outputs.setdefault(
                digest,
                {
                    "@id": _output(digest),
                    "@type": "PropertyValue",
                    "name": "an input",
                    "value": Entry(f"step.{step}.input", digest, "recorded", at),
                },
            )
        tools.append(
            {
                "@id": f"#tool-{step}",
                "@type": "SoftwareApplication",
                "name": f"marin stage {step}",
                "softwareVersion": subject.values.get("run.tree", subject["run.plan"]),
                "url": {"@id": "#marin"},
                "output": {"@id": f"#parameter-{step}"},
            }
        )
        stages.append(
            {
                "@id": f"fields.json#step-{step}",
                "@type": "HowToStep",
                "position": str(position),
                "name": step,
                "workExample": {"@id": f"#tool-{step}"},
            }
        )
        actions.append(
            {
                "@id": f"#action-{step}",
                "@type": "CreateAction",
                "name": f"step {step}",
                "description": f"execution of step {step} for run {run.run}, or the earlier one that it took over",
                "instrument": {"@id": f"#tool-{step}"},
                "agent": {"@id": "#provider"},
                "object": _one([{"@id": _output(digest)} for digest in made.inputs.values()]),
                "result": {"@id": _output(made.output.digest)},
                "actionStatus": "http://schema.org/CompletedActionStatus",
                "endTime": _second(Entry(f"step.{step}.ended", made.time, "recorded", at)),
            }
        )
        controls.append(
            {
                "@id": f"#control-{step}",
                "@type": "ControlAction",
                "name": f"orchestration of {step}",
                "instrument": {"@id": f"fields.json#step-{step}"},
                "object": {"@id": f"#action-{step}"},
            }
        )
    parameters = [
        {
            "@id": f"#parameter-{step}",
            "@type": "FormalParameter",
            "additionalType": "PropertyValue",
            "name": step,
            "conformsTo": {"@id": "https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"},
        }
        for step in steps
    ]
    # The plan, of which the steps above are parts; its file is the one with all fields.
    workflow = {
        "@id": "fields.json",
        "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"],
        "name": "the pipeline, and every field that follows from it",
        "conformsTo": {"@id": "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"},
        "encodingFormat": "application/json",
        "programmingLanguage": {"@id": "#language"},
        "identifier": subject["run.plan"],
        "version": subject["run.plan"],
        "url": f"urn:marin:plan:{subject['run.plan']}",
        "hasPart": [{"@id": tool["@id"]} for tool in tools],
        "step": [{"@id": stage["@id"]} for stage in stages],
        "output": [{"@id": parameter["@id"]} for parameter in parameters],
    }
    # The execution as a whole: from what the first step read to what the last one made.
    last = steps["export"].output.digest
    first = steps[next(iter(steps))].inputs.values()
    whole = {
        "@id": "#run",
        "@type": "CreateAction",
        "name": f"run {run.run}",
        "description": f"run {run.run} of the ledger {subject['run.ledger']}",
        "identifier": subject["run.id"],
        "instrument": {"@id": "fields.json"},
        "agent": {"@id": "#provider"},
        "object": [{"@id": _output(digest)} for digest in first],
        "result": {"@id": _output(last)},
        "actionStatus": "http://schema.org/CompletedActionStatus",
        "startTime": _second(subject["run.began"]),
        **({"endTime": _second(subject["run.ended"])} if "run.ended" in subject.values else {}),
    }
    engine = {
        "@id": "#engine",
        "@type": "OrganizeAction",
        "name": "execution of the plan",
        "agent": {"@id": "#provider"},
        "instrument": {"@id": "#marin"},
        "result": {"@id": "#run"},
        "object": [{"@id": control["@id"]} for control in controls],
    }
    # What readers of a crate begin with; everything else hangs on it.
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": name,
        "description": f"What the ledger {subject['run.ledger']} says of run {run.run} and of its model.",
        "datePublished": subject["run.began"],
        "license": {"@id": "#licence"},
        "author": {"@id": "#provider"},
        "publisher": {"@id": "#provider"},
        "conformsTo": [{"@id": profile} for profile in _PROFILES],
        "mainEntity": {"@id": "fields.json"},
        "hasPart": [{"@id": "fields.json"}, {"@id": "README.md"}],
        "mentions": [{"@id": "#run"}, {"@id": "#engine"}, *({"@id": action["@id"]} for action in actions)],
    }
    return {
        "@context": ["https://w3id.org/ro/crate/1.1/context", "https://w3id.org/ro/terms/workflow-run/context"],
        "@graph": [
            {
                "@id": FILE,
                "@type": "CreativeWork",
                "about": {"@id": "./"},
                "conformsTo": [{"@id": "https://w3id.org/ro/crate/1.1"}, {"@id": _PROFILES[3]}],
            },
            root,
            {
                "@id": "README.md",
                "@type": "File",
                "name": "model card",
                "encodingFormat": "text/markdown",
                "about": {"@id": "./"},
            },
            workflow,
            {"@id": "#language", "@type": "ComputerLanguage", "name": "Marin's plan", "url": {"@id": "#marin"}},
            {
                "@id": "#marin",
                "@type": "SoftwareApplication",
                "name": "Marin",
                "url": "urn:marin",
                "softwareVersion": subject.values.get("run.commit", subject["run.plan"]),
            },
            {
                "@id": "#provider",
                "@type": "Organization",
                "name": subject["provider.name"],
                "url": "urn:marin:provider",
                "contactPoint": subject["provider.contact"],
            },
            {"@id": "#licence", "@type": "CreativeWork", "name": licence, "identifier": licence},
            *(
                {
                    "@id": profile,
                    "@type": ["CreativeWork", "Profile"],
                    "name": profile.rsplit("/", 2)[-2],
                    "version": profile.rsplit("/", 1)[-1],
                }
                for profile in _PROFILES
            ),
            engine,
            whole,
            *controls,
            *stages,
            *tools,
            *parameters,
            *actions,
            *outputs.values(),
        ],
    }


def _one(found: list[dict[str, Any]]) -> Any:
    """A single value stands by itself in a crate."""
    return found[0] if len(found) == 1 else found


def _second(told: Entry) -> Entry:
    """A time as forms have it that know no parts of a second (ISO 8601)."""
    return Entry(told.name, f"{str(told)[:19]}+00:00", told.source, told.events, told.measured)


def _output(digest: str) -> str:
    return f"urn:marin:output:{digest}"
