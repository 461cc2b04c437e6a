"""What Regulation (EU) 2024/1689 asks of the provider of a general-purpose model: two forms, field by field.

* The public summary of training content (Article 53(1)(d)), by the template of the AI Office of 24 July 2025.
* The Model Documentation Form of the code of practice, chapter transparency, of 10 July 2025 (Article 53(1)(a) and (b),
  Annexes XI and XII).

Each field has the section of its form, the paragraph that asks for it, and the names of the values that answer it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from marin.dossier.facts import Subject, Told

SUMMARY, FORM = "eu-training-summary.json", "eu-model-documentation.json"


@dataclass(frozen=True)
class Asked:
    """One field of a form: its section, what asks for it, its words in short, and the values that answer it."""

    section: str
    paragraph: str
    question: str
    answers: tuple[str, ...]


def _asked(text: str, paragraph: str) -> tuple[Asked, ...]:
    rows = [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]
    return tuple(Asked(row[0], row[-1] if len(row) == 4 else paragraph, row[1], tuple(row[2].split())) for row in rows)


TEMPLATE = _asked(
    """
    1.1 Provider | Name and contact details of the provider | provider.name provider.contact
    1.1 Provider | Authorised representative | provider.representative
    1.2 Model | Versioned model name | model.name model.digest run.id
    1.2 Model | Models that this model modifies | model.base
    1.2 Model | Date of placement on the Union market | model.market_date
    1.3 Modalities and size | Modality | model.modality
    1.3 Modalities and size | Size of the training data | training.tokens data.tokens.train_tokens data.corpus.train_bytes
    1.3 Modalities and size | Types of content | data.types
    1.3 Modalities and size | Latest date of acquisition | data.acquired_until
    1.3 Modalities and size | Linguistic characteristics | data.language data.linguistic
    2.1 Publicly available data sets | Data sets that were used | data.public data.name data.kinds
    2.2.1 Data licensed by holders of rights | Whether, and which | data.private_licensed
    2.2.2 Private data of other third parties | Whether, and which | data.private_other
    2.3 Data crawled and scraped | Crawlers: names, purposes, behaviour, period | data.crawlers
    2.3 Data crawled and scraped | Most relevant domain names | data.domains
    2.4 User data | Whether, and from which services | data.users
    2.5 Synthetic data | Whether, and by which models | data.synthetic
    2.6 Other sources of data | Whether, and which | data.other
    3.1 Reservation of rights | Measures under Article 4(3) of Directive (EU) 2019/790 | data.reservation
    3.2 Illegal content | Measures to avoid or remove it | data.illegal
    3.3 Other information | Processing of the data, optional | data.more data.excluded
    """,
    "Article 53(1)(d)",
)

DOCUMENTATION = _asked(
    """
    General information | Legal name of the provider | provider.name | Annex XI(1)(1)
    General information | Model name | model.name | Annex XI(1)(1)
    General information | Model authenticity | model.digest run.id run.ledger | Annex XI(1)(1)
    General information | Release date | model.release_date | Annex XI(1)(1)(c)
    General information | Union market release date | model.market_date | Annex XI(1)(1)(c)
    General information | Model dependencies | model.base | Annex XI(1)(1)
    Model properties | Model architecture | model.architecture | Annex XI(1)(1)(d)
    Model properties | Design specifications of the model | model.layers model.width model.heads model.context \
    model.vocabulary | Annex XI(1)(2)(b)
    Model properties | Input modalities, and largest input | model.modality model.context model.input_limit | Annex XI(1)(1)(e)
    Model properties | Output modalities, and largest output | model.modality model.context | Annex XI(1)(1)(e)
    Model properties | Total model size | model.parameters model.bytes | Annex XI(1)(1)(d)
    Methods of distribution and licences | Distribution channels | model.distribution | Annex XI(1)(1)(c)
    Methods of distribution and licences | Licence | model.licence | Annex XI(1)(1)(f)
    Methods of distribution and licences | Additional assets | model.assets | Annex XI(1)(1)(c)
    Use | Acceptable use policy | model.acceptable_use | Annex XI(1)(1)(b)
    Use | Intended uses | model.intended_use model.limitations | Annex XI(1)(1)(a)
    Use | Type and nature of systems for integration | model.systems | Annex XI(1)(1)(a)
    Use | Technical means for integration | model.integration model.format | Annex XI(1)(2)(a)
    Use | Required hardware | model.hardware | Annex XII(1)(d)
    Use | Required software | model.software | Annex XII(1)(e)
    Training process | Design specifications of the training process | training.steps training.sequences training.tokens \
    training.objective training.optimizer training.learning_rate training.schedule training.weight_decay \
    training.precision training.arithmetic training.seed run.recipe run.plan | Annex XI(1)(2)(b)
    Training process | Decision rationale | training.rationale | Annex XI(1)(2)(b)
    Data | Type or modality | model.modality data.types | Annex XI(1)(2)(c)
    Data | Provenance | data.name data.kinds data.corpus data.description | Annex XI(1)(2)(c)
    Data | How the data was obtained and selected | data.obtained | Annex XI(1)(2)(c)
    Data | Number of data points | data.corpus.train_documents data.corpus.validation_documents data.tokens.train_tokens \
    data.tokens.validation_tokens | Annex XI(1)(2)(c)
    Data | Scope and main characteristics | data.description data.language | Annex XI(1)(2)(c)
    Data | Curation methodologies | data.curation data.excluded | Annex XI(1)(2)(c)
    Data | Measures to detect unsuitable sources | data.unsuitable | Annex XI(1)(2)(c)
    Data | Measures to detect identifiable biases | data.biases | Annex XI(1)(2)(c)
    Computational resources | Training time, measured | training.seconds run.seconds training.devices training.device \
    training.processor training.cpu_percent | Annex XI(1)(2)(d)
    Computational resources | Amount of computation | training.compute_flop | Annex XI(1)(2)(d)
    Computational resources | Measurement methodology | training.compute_method | Annex XI(1)(2)(d)
    Energy | Energy used for training | training.energy_mwh | Annex XI(1)(2)(e)
    Energy | Measurement methodology | training.energy_method | Annex XI(1)(2)(e)
    Energy | Computation of a benchmarked inference | inference.compute_flop | Annex XI(1)(2)(e)
    Energy | Methodology of that | inference.compute_method | Annex XI(1)(2)(e)
    """,
    "",
)
FORMS = {
    SUMMARY: ("Public summary of training content", "template of the AI Office, 24 July 2025", TEMPLATE),
    FORM: ("Model Documentation Form", "code of practice for general-purpose models, 10 July 2025", DOCUMENTATION),
}


def filled(subject: Subject, name: str) -> dict[str, Any]:
    """A form with its answers. Values that the log of an older run does not have are left out where others answer."""
    title, source, asked = FORMS[name]
    rows = [
        {
            "section": item.section,
            "paragraph": item.paragraph,
            "question": item.question,
            "answers": {told.name: told for told in answers(subject, item)},
        }
        for item in asked
    ]
    return {"form": title, "by": source, "law": "Regulation (EU) 2024/1689", "fields": rows}


def answers(subject: Subject, asked: Asked) -> list[Told]:
    """The values that answer one field."""
    return [subject.values[name] for name in asked.answers if name in subject.values]


def open_fields(subject: Subject) -> Iterator[tuple[str, Asked]]:
    """Fields that nobody answered in full yet: the form, and the field. What is optional is not among them."""
    for name, (_, _, asked) in FORMS.items():
        for item in asked:
            told = answers(subject, item)
            if (not told or any(value.source == "open" for value in told)) and "optional" not in item.question:
                yield name, item
