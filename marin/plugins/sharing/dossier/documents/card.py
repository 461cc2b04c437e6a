"""The model card: Hugging Face's metadata, and what a reader asks first, with the event behind each line."""

from __future__ import annotations

from typing import Any

from marin.export.quoting import yaml_of
from marin.plugins.sharing.dossier.documents.marked import field, fields, plain
from marin.plugins.sharing.dossier.facts import OPEN, Entry, Subject
from marin.reporting.template import in_markdown

FILE = "README.md"
_SECTIONS = (
    ("Model", ("model.", "run.")),
    ("Training", ("training.",)),
    ("Data", ("data.",)),
    ("Evaluation", ("evaluation.",)),
    ("Verification", ("verification.",)),
    ("Inference", ("inference.",)),
    ("Provider", ("provider.",)),
)


def metadata(subject: Subject) -> dict[str, Any]:
    """The block between the lines of dashes, with its marks. What is open is left out: the Hub has no word for it."""
    found: dict[str, Any] = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    found["tags"] = ["marin", subject["model.architecture"], subject["training.arithmetic"]]
    for key, name in (("license", "model.licence"), ("language", "data.language"), ("base_model", "model.base")):
        told = subject[name]
        if told.source == "open" or (key == "base_model" and str(told).lower() == "none"):
            continue
        shown = str(told).lower() if key == "license" else told.value
        found[key] = Entry(name, shown, told.source, told.events)
    metrics = [{"type": told.name.removeprefix("evaluation."), "value": told} for told in subject.named("evaluation.")]
    if metrics:
        named = subject["model.name"] if subject["model.name"].source != "open" else subject["run.id"]
        data = {"name": subject["data.name"], "type": subject["data.name"]}
        results = [{"task": {"type": "text-generation"}, "dataset": data, "metrics": metrics}]
        found["model-index"] = [{"name": named, "results": results}]
    return found


def card(subject: Subject) -> tuple[bytes, list[dict[str, Any]]]:
    """The file and its fields."""
    head = metadata(subject)
    listed = list(fields(head, FILE, "/metadata"))
    lines = ["---", yaml_of(plain(head)).rstrip(), "---", ""]
    title = in_markdown(str(subject.title))
    lines += [f"# {title}", "", _INTRODUCTION, "", f"    marin verify {subject.run.run}", ""]
    for title, names in _SECTIONS:
        rows = [told for name in names for told in subject.named(name)]
        if rows:
            lines += [f"## {title}", "", "| what | value | from |", "| --- | --- | --- |", *map(_fact_row, rows), ""]
            listed += [field(told, FILE, f"/{title}/{told.name}") for told in rows]
    return "\n".join(lines).encode(), listed


_INTRODUCTION = (
    "Trained and recorded by Marin. A line from an event is proven to be in a signed log, and anyone who has the log can execute "
    "what it says again; a stated line is the provider's word."
)


def _fact_row(told: Entry) -> str:
    events = f"event {', '.join(map(str, told.events[:4]))}"
    where = {"recorded": events, "stated": f"stated, {events}", "open": "open"}[told.source]
    text = in_markdown(str(told)) if told.source != "open" else f"*{OPEN}*"
    return f"| {in_markdown(told.name)} | {text} | {where} |"
