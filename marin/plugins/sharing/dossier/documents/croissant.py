"""Each data set of a run as Croissant 1.0 with the vocabulary for responsible AI (docs.mlcommons.org/croissant).

The files are those of the step ``corpus``, by the digests in its manifest; mlcroissant judges it in `make foreign`.
"""

from __future__ import annotations

from typing import Any

from marin.plugins.sharing.dossier.facts import Subject
from marin.recipe.schema import parts

CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
_RAI = {
    "rai:dataCollection": "data.obtained",
    "rai:dataPreprocessingProtocol": "data.curation",
    "rai:dataBiases": "data.biases",
    "rai:personalSensitiveInformation": "data.personal",
    "rai:dataUseCases": "model.intended_use",
    "rai:dataLimitations": "model.limitations",
}


def file_of(name: str) -> str:
    """Where the dossier has the description of data set ``name``."""
    return f"croissant/{name}.json"


def names(subject: Subject) -> list[str]:
    """The data sets of the run."""
    return sorted(parts(subject.run.recipe.dataset))


def croissant(subject: Subject, name: str) -> dict[str, Any]:
    """The description of one data set."""
    several = len(names(subject)) > 1
    files = [
        (path, digest, size)
        for path, digest, size in subject.files.get("corpus", ())
        if path.endswith(".jsonl") and (not several or path == f"train/{name}.jsonl" or "/" not in path)
    ]
    corpus, licence = subject["data.corpus"], subject["data.licence"]
    objects = [
        {
            "@type": "cr:FileObject",
            "@id": path,
            "name": path,
            "contentUrl": path,
            "contentSize": f"{size} B",
            "encodingFormat": "application/jsonlines",
            "sha256": digest.removeprefix("sha256:"),
        }
        for path, digest, size in files
    ]
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": name,
        "description": subject["data.description"],
        "identifier": corpus,
        "version": "1.0.0",
        "datePublished": subject["run.began"],
        "license": licence,
        "creator": {"@type": "sc:Organization", "name": subject["provider.name"]},
        "url": f"urn:marin:output:{corpus}",
        "citeAs": f"data set {name} of run {subject.run.run}, {corpus}",
        "inLanguage": subject["data.language"],
        **{key: subject[value] for key, value in _RAI.items()},
        "distribution": objects,
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": f"documents-{path}",
                "name": f"documents of {path}",
                "field": [
                    {
                        "@type": "cr:Field",
                        "@id": f"documents-{path}/text",
                        "name": "text",
                        "dataType": "sc:Text",
                        "source": {"fileObject": {"@id": path}, "extract": {"column": "text"}},
                    }
                ],
            }
            for path, _, _ in files
            if not path.endswith("minimal_pairs.jsonl")
        ],
    }
