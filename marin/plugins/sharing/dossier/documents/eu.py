"""What Regulation (EU) 2024/1689 asks of the provider of a general-purpose model: two forms, field by field.

* The public summary of training content (Article 53(1)(d)), by the template of the Commission of 24 July 2025: its
  sections, and what is asked only where the answer before it is yes.
* The Model Documentation Form of the code of practice, chapter transparency, measure 1.1, of 10 July 2025 (Article 53(1)(a)
  and (b)). Its fields carry the points of Annex XI, section 1, and of Annex XII that they answer.

Both give bands beside numbers (tokens, parameters, months, powers of ten); so do the answers here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from marin.plugins.sharing.dossier.documents.forms import Form, FormField, form_fields, unanswered_fields
from marin.plugins.sharing.dossier.facts import Subject

SUMMARY, FORM = "eu-training-summary.json", "eu-model-documentation.json"

TEMPLATE = form_fields(
    """
    Head | Version of the summary, and last update | summary.version summary.updated
    1.1 Provider identification | Provider name and contact details | provider.name provider.contact
    1.1 Provider identification | Authorised representative name and contact details | provider.representative
    1.2 Model identification | Versioned model name(s) | model.name model.digest run.id
    1.2 Model identification | Model dependencies | model.base
    1.2 Model identification | Date of placement of the model on the Union market | model.market_date
    1.3 Modalities, overall training data size and other characteristics | Modality | model.modality
    1.3 Modalities, overall training data size and other characteristics | Training data size | data.size_band \
    data.tokens.train_tokens training.tokens data.corpus.train_bytes
    1.3 Modalities, overall training data size and other characteristics | Types of content | data.types
    1.3 Modalities, overall training data size and other characteristics | Latest date of data acquisition or collection, and \
    whether training goes on with newer data | data.acquired_until data.continuous
    1.3 Modalities, overall training data size and other characteristics | Linguistic characteristics of the overall training \
    data | data.language data.linguistic
    1.3 Modalities, overall training data size and other characteristics | Other relevant characteristics | \
    data.characteristics optional
    1.3 Modalities, overall training data size and other characteristics | Additional comments | data.size_comments optional
    2.1 Publicly available datasets | Were publicly available datasets used | data.public
    2.1 Publicly available datasets | Modalities of their content | data.public_modalities where:data.public
    2.1 Publicly available datasets | List of large publicly available datasets | data.public_datasets data.name data.kinds \
    where:data.public
    2.1 Publicly available datasets | Other publicly available datasets in general | data.public_others where:data.public
    2.1 Publicly available datasets | Additional comments | data.public_comments optional where:data.public
    2.2.1 Datasets commercially licensed by rightsholders or their representatives | Were licensing agreements concluded | \
    data.licensed
    2.2.1 Datasets commercially licensed by rightsholders or their representatives | Modalities of their content | \
    data.licensed_modalities where:data.licensed
    2.2.2 Private datasets obtained from other third parties | Were private datasets obtained | data.private
    2.2.2 Private datasets obtained from other third parties | Modalities of their content | data.private_modalities \
    where:data.private
    2.2.2 Private datasets obtained from other third parties | Those that are publicly known | data.private_known \
    where:data.private
    2.2.2 Private datasets obtained from other third parties | Those that are not publicly known, in general | \
    data.private_others where:data.private
    2.2.2 Private datasets obtained from other third parties | Additional comments | data.private_comments optional \
    where:data.private
    2.3 Data crawled and scraped from online sources | Were crawlers used by the provider or on their behalf | data.crawled
    2.3 Data crawled and scraped from online sources | Names or identifiers of the crawlers | data.crawlers where:data.crawled
    2.3 Data crawled and scraped from online sources | Purposes of the crawlers | data.crawler_purposes where:data.crawled
    2.3 Data crawled and scraped from online sources | Behaviour of the crawlers | data.crawler_behaviour where:data.crawled
    2.3 Data crawled and scraped from online sources | Period of data collection | data.crawled_period where:data.crawled
    2.3 Data crawled and scraped from online sources | Types of content and online sources | data.crawled_content \
    where:data.crawled
    2.3 Data crawled and scraped from online sources | Modalities | data.crawled_modalities where:data.crawled
    2.3 Data crawled and scraped from online sources | Summary of the most relevant domain names | data.domains \
    where:data.crawled
    2.3 Data crawled and scraped from online sources | Additional comments | data.crawled_comments optional where:data.crawled
    2.4 User data | Was data from interactions with the model used | data.user_prompts
    2.4 User data | Was data from interactions with other services or products used | data.user_services
    2.4 User data | Services and products that the data was collected by | data.user_sources where:data.user_prompts \
    where:data.user_services
    2.4 User data | Modalities | data.user_modalities where:data.user_prompts where:data.user_services
    2.4 User data | Additional comments | data.user_comments optional where:data.user_prompts where:data.user_services
    2.5 Synthetic data | Was synthetic AI-generated data created by the provider or on their behalf | data.synthetic
    2.5 Synthetic data | Modalities | data.synthetic_modalities where:data.synthetic
    2.5 Synthetic data | General-purpose AI models on the market that generated it | data.synthetic_models where:data.synthetic
    2.5 Synthetic data | Other AI models that generated it | data.synthetic_others where:data.synthetic
    2.5 Synthetic data | Additional comments | data.synthetic_comments optional where:data.synthetic
    2.6 Other sources of data | Were there sources other than those of 2.1 to 2.5 | data.other
    2.6 Other sources of data | Description of these sources and of the data | data.other_sources where:data.other
    2.6 Other sources of data | Additional comments | data.other_comments optional where:data.other
    3.1 Respect of reservation of rights from text and data mining exception or limitation | Signatory of the code of practice \
    | provider.signatory
    3.1 Respect of reservation of rights from text and data mining exception or limitation | Measures before and during \
    collection, with opt-out protocols honoured (Directive (EU) 2019/790, Article 4(3)) | data.reservation
    3.1 Respect of reservation of rights from text and data mining exception or limitation | Additional comments | \
    data.reservation_comments optional
    3.2 Removal of illegal content | General description of measures taken | data.illegal
    3.3 Other information | Other relevant information about data processing | data.more data.excluded optional
    """,
    "Article 53(1)(d)",
)

DOCUMENTATION = form_fields(
    """
    Head | Date of the last update, and version of the document | summary.updated summary.version | Article 53(1)(a)
    General information | Legal name for the model provider | provider.name | Annex XI, 1(1)
    General information | Model name | model.name run.id | Annex XI, 1(1)
    General information | Model authenticity | model.digest run.ledger run.plan | Annex XI, 1(1)
    General information | Release date | model.release_date | Annex XI, 1(1)(c); Annex XII, (1)(c)
    General information | Union market release date | model.market_date | Annex XI, 1(1)(c); Annex XII, (1)(c)
    General information | Model dependencies | model.base | Annex XI, 1(1)
    Model properties | Model architecture | model.architecture | Annex XI, 1(1)(d); Annex XII, (1)(f)
    Model properties | Design specifications of the model | model.layers model.width model.heads model.context \
    model.vocabulary model.rationale | Annex XI, 1(2)(b)
    Model properties | Input modalities, and the largest input of each | model.modality model.context model.input_limit | \
    Annex XI, 1(1)(e); Annex XII, (1)(g), (2)(b)
    Model properties | Output modalities, and the largest output of each | model.modality model.context | \
    Annex XI, 1(1)(e); Annex XII, (1)(g), (2)(b)
    Model properties | Total model size | model.parameters model.size_band model.bytes | Annex XI, 1(1)(d); Annex XII, (1)(f)
    Methods of distribution and licences | Distribution channels | model.distribution | Annex XI, 1(1)(c); Annex XII, (1)(c)
    Methods of distribution and licences | Licence, and its category | model.licence model.licence_category | \
    Annex XI, 1(1)(f); Annex XII, (1)(h)
    Methods of distribution and licences | Additional assets | model.assets | Annex XI, 1(1)(f); Annex XII, (1)(h)
    Use | Acceptable use policy | model.acceptable_use | Annex XI, 1(1)(b); Annex XII, (1)(b)
    Use | Intended uses, and those that are restricted | model.intended_use model.limitations | \
    Annex XI, 1(1)(a); Annex XII, (1)(a)
    Use | Type and nature of AI systems in which the model can be integrated | model.systems | \
    Annex XI, 1(1)(a); Annex XII, (1)(a)
    Use | Technical means for model integration | model.integration model.format | Annex XI, 1(2)(a); Annex XII, (2)(a)
    Use | Required hardware | model.hardware | Annex XII, (1)(d)
    Use | Required software | model.software | Annex XII, (1)(e)
    Training process | Design specifications of the training process | training.steps training.sequences training.tokens \
    training.objective training.optimizer training.learning_rate training.schedule training.weight_decay \
    training.precision training.arithmetic training.seed run.recipe run.plan | Annex XI, 1(2)(b)
    Training process | Decision rationale | training.rationale | Annex XI, 1(2)(b)
    Data for training, testing and validation | Type or modality | model.modality data.types | \
    Annex XI, 1(2)(c); Annex XII, (2)(c)
    Data for training, testing and validation | Provenance: web crawling, private, user, public, synthetic or other data | \
    data.crawled data.licensed data.private data.user_prompts data.user_services data.public data.synthetic data.other \
    data.name data.kinds data.corpus | Annex XI, 1(2)(c); Annex XII, (2)(c)
    Data for training, testing and validation | How the data was obtained and selected | data.obtained | Annex XI, 1(2)(c)
    Data for training, testing and validation | Number of data points | data.corpus.train_documents \
    data.corpus.validation_documents data.tokens.train_tokens data.tokens.validation_tokens | Annex XI, 1(2)(c)
    Data for training, testing and validation | Scope and main characteristics | data.description data.language | \
    Annex XI, 1(2)(c)
    Data for training, testing and validation | Curation methodologies | data.curation data.steps data.read data.kept \
    data.removed data.excluded | Annex XI, 1(2)(c); Annex XII, (2)(c)
    Data for training, testing and validation | Measures to detect unsuitability of data sources | data.unsuitable | \
    Annex XI, 1(2)(c)
    Data for training, testing and validation | Measures to detect identifiable biases | data.biases | Annex XI, 1(2)(c)
    Computational resources during training | Training time: its band, wall clock and hardware days, measured | \
    training.time_band training.days training.hardware_days training.seconds run.seconds training.devices training.device \
    training.processor training.cpu_percent | Annex XI, 1(2)(d)
    Computational resources during training | Amount of computation used for training | training.compute_flop \
    training.compute_order | Annex XI, 1(2)(d)
    Computational resources during training | Measurement methodology | training.compute_method | Annex XI, 1(2)(d)
    Energy consumption during training and inference | Amount of energy used for training, in MWh | training.energy_mwh | \
    Annex XI, 1(2)(e)
    Energy consumption during training and inference | Measurement methodology | training.energy_method | Annex XI, 1(2)(e)
    Energy consumption during training and inference | Benchmarked amount of computation used for inference | \
    inference.compute_flop | Annex XI, 1(2)(e)
    Energy consumption during training and inference | Measurement methodology of that | inference.compute_method | \
    Annex XI, 1(2)(e)
    """
)

FORMS: Mapping[str, Form] = {
    SUMMARY: Form("Public summary of training content", "template of the Commission, 24 July 2025", TEMPLATE),
    FORM: Form(
        "Model Documentation Form",
        "code of practice for general-purpose AI models, transparency, measure 1.1, 10 July 2025",
        DOCUMENTATION,
    ),
}


def open_fields(subject: Subject) -> Iterator[tuple[str, FormField]]:
    """Fields that nobody answered in full yet: the form, and the field."""
    for name, form in FORMS.items():
        for item in unanswered_fields(subject, form):
            yield name, item
