"""The model and its data in SPDX 3.0.1, by the profiles core, software, AI and Dataset, as JSON-LD.

spdx3-validate and the specification's SHACL shapes judge it in `make foreign`.
"""

from __future__ import annotations

from typing import Any

from marin.plugins.sharing.dossier.facts import Entry, Subject

FILE = "spdx.json"
CONTEXT = "https://spdx.org/rdf/3.0.1/spdx-context.jsonld"


def spdx(subject: Subject) -> dict[str, Any]:
    """The document: its graph begins with who says it, and when."""
    base = f"urn:marin:{subject['model.digest']}"
    created = Entry("run.began", f"{str(subject['run.began'])[:19]}Z", "recorded", subject["run.began"].events)
    about = "_:creation"

    def element(kind: str, key: str, **more: Any) -> dict[str, Any]:
        return {"type": kind, "spdxId": f"{base}:{key}", "creationInfo": about, **more}

    def joined(kind: str, key: str, start: str, *to: str) -> dict[str, Any]:
        ends = [f"{base}:{one}" for one in to]
        return element("Relationship", key, **{"from": f"{base}:{start}", "relationshipType": kind, "to": ends})

    # Nobody need have named the model; an SPDX package must have a name.
    files = subject.files.get("export", ())
    name = subject.title
    elements = [
        element("Organization", "provider", name=subject["provider.name"]),
        element(
            "ai_AIPackage",
            "model",
            name=name,
            suppliedBy=f"{base}:provider",
            releaseTime=_ended(subject),
            software_packageVersion=subject["model.digest"],
            software_downloadLocation=f"urn:marin:output:{subject['model.digest']}",
            software_primaryPurpose="model",
            ai_typeOfModel=[subject["model.architecture"]],
            ai_informationAboutTraining=_as_words(subject["run.recipe"]),
            ai_limitation=_as_words(subject["model.limitations"]),
            ai_hyperparameter=_pairs(subject, "training."),
            ai_metric=_pairs(subject, "evaluation."),
        ),
        element(
            "dataset_DatasetPackage",
            "data",
            name=subject["data.name"],
            originatedBy=[f"{base}:provider"],
            builtTime=created,
            releaseTime=created,
            software_packageVersion=subject["data.corpus"],
            software_downloadLocation=f"urn:marin:output:{subject['data.corpus']}",
            software_primaryPurpose="data",
            dataset_datasetType=["text"],
            dataset_knownBias=[_as_words(subject["data.biases"])],
            dataset_dataCollectionProcess=_as_words(subject["data.obtained"]),
        ),
        *(
            element(
                "software_File",
                f"file:{number}",
                name=path,
                software_primaryPurpose="file",
                verifiedUsing=[{"type": "Hash", "algorithm": "sha256", "hashValue": digest.removeprefix("sha256:")}],
            )
            for number, (path, digest, _) in enumerate(files)
        ),
        joined("trainedOn", "trained-on", "model", "data"),
        *([joined("contains", "files", "model", *(f"file:{number}" for number in range(len(files))))] if files else []),
    ]
    # A licence is free text here, as stated: an SPDX identifier would claim that a user compared it with that licence. The AI
    # profile wants both relations, declared and concluded; there is only the one statement for both.
    for about_what, told in (("model", subject["model.licence"]), ("data", subject["data.licence"])):
        elements.append(
            element(
                "simplelicensing_SimpleLicensingText",
                f"licence:{about_what}",
                simplelicensing_licenseText=_as_words(told),
            )
        )
        elements += [
            joined(kind, f"{kind}:{about_what}", about_what, f"licence:{about_what}")
            for kind in ("hasDeclaredLicense", "hasConcludedLicense")
        ]
    # The document lists every element, so it is made when all of them are known.
    document = element(
        "SpdxDocument",
        "document",
        name=f"dossier of run {subject.run.run}",
        rootElement=[f"{base}:model"],
        profileConformance=["core", "software", "ai", "dataset", "simpleLicensing"],
        element=[item["spdxId"] for item in elements],
    )
    tool = {
        "type": "CreationInfo",
        "@id": about,
        "specVersion": "3.0.1",
        "created": created,
        "createdBy": [f"{base}:provider"],
    }
    return {"@context": CONTEXT, "@graph": [tool, document, *elements]}


def _ended(subject: Subject) -> Entry:
    told = subject.values.get("run.ended", subject["run.began"])
    return Entry(told.name, f"{str(told)[:19]}Z", "recorded", told.events)


def _as_words(told: Entry) -> Entry:
    return Entry(told.name, str(told), told.source, told.events)


def _pairs(subject: Subject, before: str) -> list[dict[str, Any]]:
    return [
        {"type": "DictionaryEntry", "key": told.name.removeprefix(before), "value": _as_words(told)}
        for told in subject.named(before)
        if told.source == "recorded"
    ]
