"""The recipe: everything that decides the bits of a pipeline, typed, frozen, with one canonical digest.

What is in here is identity. What only says how a machine executes it (number of devices, hosts, workers, paths,
logging) is not: it lives in :class:`Execution`, which no digest ever sees. Every default is written into the
canonical form, so a new default in a later version can not change an old digest in silence. A field that was added
later (``ADDED_LATER``) is absent from the canonical form where it has no value, which means what it meant before there
was the field: recipes recorded by older versions stay readable and keep their digest. A recipe that says it is of a
newer version is refused.

The values are ``msgspec`` structs: frozen dataclasses whose types and ranges are checked when a file is read, with
the path of the offending field in the message.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct

from marin.errors import UsageError
from marin.recipe.arithmetic import CPU_PROFILES as CPU_PROFILES
from marin.recipe.arithmetic import Arithmetic as Arithmetic
from marin.recipe.arithmetic import check_contract
from marin.recipe.evaluation import Evaluation as Evaluation
from marin.recipe.evaluation import check_evaluation
from marin.recipe.form.float32 import check_float32
from marin.recipe.form.optimizer import Optimizer as Optimizer
from marin.recipe.form.optimizer import check_name, check_optimizer, check_read, check_written, completed
from marin.recipe.form.record import ADDED_LATER as ADDED_LATER
from marin.recipe.form.record import RECIPE_VERSION as RECIPE_VERSION
from marin.recipe.form.record import as_written, first_difference
from marin.recipe.form.record import digest as digest
from marin.recipe.form.record import plain as plain
from marin.recipe.form.record import recorded as recorded
from marin.recipe.form.record import unplain as unplain
from marin.recipe.form.schedule import check_schedule
from marin.recipe.mixture import block_counts
from marin.recipe.model import Model as Model
from marin.recipe.model import check_experts, check_head
from marin.recipe.objective import Objective as Objective
from marin.recipe.objective import check_objective
from marin.recipe.section import Artifact as Artifact
from marin.recipe.section import Count, Digest, Documents, Name, Order, Positive, Section, Seed, Sha256, Weight
from marin.recipe.section import Initial as Initial
from marin.recipe.section import Keep as Keep
from marin.recipe.section import Lora as Lora
from marin.recipe.section import Phase as Phase
from marin.recipe.section import Tokens as Tokens

LEAST_TRAINED = 258
"""Tokens of a tokenizer that is trained here; one from elsewhere has as many as it has."""


class GrammarDataset(Section, frozen=True, tag="grammar", tag_field="kind"):
    """Text from the embedded probabilistic grammar (the plugin grammar): no download, any size, seeded."""

    name: Name = "grammar"
    seed: Seed = 0
    train_bytes: Annotated[int, Meta(ge=10_000, le=10_000_000_000)] = 2_000_000
    validation_bytes: Annotated[int, Meta(ge=1_000, le=1_000_000_000)] = 100_000
    minimal_pairs: Annotated[int, Meta(ge=0, le=100_000)] = 300


class UrlDataset(Section, frozen=True, tag="url", tag_field="kind", kw_only=True):
    """One public text file, pinned by sha256. ``MARIN_DATA/<mirror>`` is tried before the network."""

    name: Name
    url: Annotated[str, Meta(pattern=r"^https://")]
    sha256: Sha256
    mirror: Annotated[str, Meta(min_length=1, pattern=r"^[^/\\][^\\]*$")]
    size: Positive
    split: Literal["lines", "paragraphs", "file"] = "paragraphs"
    paragraphs_per_document: Positive = 8
    validation_fraction: Annotated[float, Meta(gt=0.0, lt=1.0)] = 0.1
    minimal_pairs: str | None = None


class FilesDataset(Section, frozen=True, tag="files", tag_field="kind", kw_only=True):
    """The user's own .txt, .jsonl or .jsonl.gz files by glob, relative to the working folder. ``split`` is about .txt.
    ``chat``: conversations, of which what the assistant says is learned, in the form of ``chat_template`` (Jinja);
    a line that is not one is counted and named, or, where it is ``strict``, an error. ``preferences``: each line has two, of
    which one is preferred (:mod:`marin.data.preferences`). ``chat_reference``: whose ids and masks conversations have; None:
    those of recipes from before there was one (:mod:`marin.data.earlier.chats`)."""

    name: Name = "files"
    globs: Annotated[tuple[str, ...], Meta(min_length=1)]
    split: Literal["lines", "paragraphs", "file"] = "paragraphs"
    paragraphs_per_document: Positive = 8
    validation_fraction: Annotated[float, Meta(gt=0.0, lt=1.0)] = 0.05
    text_field: Annotated[str, Meta(min_length=1)] = "text"
    minimal_pairs: str | None = None
    chat: bool | None = None
    chat_template: Annotated[str, Meta(min_length=1, max_length=65_536)] | None = None
    chat_reference: Literal["transformers"] | None = None
    strict: bool | None = None
    preferences: bool | None = None


class ArtifactDataset(Section, frozen=True, tag="artifact", tag_field="kind", kw_only=True):
    """A corpus that is in the store: a folder with ``train.jsonl`` and ``validation.jsonl`` (and ``minimal_pairs.jsonl``
    if there are some), in the form in which the step ``corpus`` writes them."""

    name: Name
    artifact: Artifact


class DocumentsDataset(Section, frozen=True, tag="documents", tag_field="kind", kw_only=True):
    """A collection of documents that is in the store (:mod:`marin.plugins.collections`); it says which of them are held out."""

    name: Name = "documents"
    artifact: Digest | None = None


class WebDataset(Section, frozen=True, tag="web", tag_field="kind", kw_only=True):
    """A collection that is made first, by the settings ``collection`` names; a record has a ``DocumentsDataset`` instead."""

    name: Name = "web"
    sources: Annotated[tuple[str, ...], Meta(min_length=1)]
    collection: Annotated[str, Meta(min_length=1)] = "web"
    evaluations: tuple[str, ...] = ()
    evaluation_fields: tuple[str, ...] = ("question", "answer")


SingleDataset = GrammarDataset | UrlDataset | FilesDataset | ArtifactDataset | DocumentsDataset | WebDataset


class MixtureDataset(Section, frozen=True, tag="mixture", tag_field="kind", kw_only=True):
    """Several data sets by name. Each keeps a stream of its own; ``Recipe.mixture`` says how they are drawn from. ``held_out``:
    ``all`` trains in no part on what one of them holds out; None is what recipes from before there was this field mean."""

    name: Name = "mixture"
    parts: Annotated[dict[Name, SingleDataset], Meta(min_length=1, max_length=64)]
    held_out: Literal["all"] | None = None


Dataset = SingleDataset | MixtureDataset
DATASETS: dict[str, type[Struct]] = {kind.__struct_config__.tag: kind for kind in get_args(Dataset)}


def parts(dataset: Dataset) -> dict[str, SingleDataset]:
    """The data sets of a recipe that have a stream of their own, by name."""
    return dict(dataset.parts) if isinstance(dataset, MixtureDataset) else {dataset.name: dataset}


def chats(dataset: Dataset) -> list[FilesDataset]:
    """Those of its parts that are conversations as their reference has them, in order of name."""
    found = (part for _, part in sorted(parts(dataset).items()))
    return [part for part in found if isinstance(part, FilesDataset) and part.chat and part.chat_reference]


def may_be_masked(recipe: Recipe) -> bool:
    """Whether documents of it may say which of their tokens are learned: conversations, and what someone else made."""
    kinds = (ArtifactDataset, DocumentsDataset, WebDataset)
    made = any(isinstance(part, kinds) or getattr(part, "chat", None) for part in parts(recipe.dataset).values())
    return made or recipe.tokens.artifact is not None or recipe.together > 1


def artifacts(recipe: Recipe) -> dict[str, Artifact]:
    """The artifacts that stand for outputs of the pipeline's steps, by step; those of a mixture's parts by
    ``corpus:<part>``."""
    found: dict[str, Artifact] = {}
    if isinstance(recipe.dataset, ArtifactDataset):
        found["corpus"] = recipe.dataset.artifact
    elif isinstance(recipe.dataset, MixtureDataset):
        found |= {
            f"corpus:{name}": part.artifact
            for name, part in sorted(recipe.dataset.parts.items())
            if isinstance(part, ArtifactDataset)
        }
    return found | ({"tokens": recipe.tokens.artifact} if recipe.tokens.artifact is not None else {})


class Tokenizer(Section, frozen=True):
    """Byte-level BPE, trained on the train split of this recipe's own corpus; or one that was made elsewhere, ``artifact`` of the
    store, which was ``taken_from`` a folder or the Hub and has ``vocab_size`` tokens (:mod:`marin.data.borrowed`).
    ``sample_fraction``: train on the documents whose texts fall below this share of all texts, whatever else the corpus holds.
    ``reading``: ``plain`` is what a tokenizer from elsewhere makes of a text alone, and words are counted in the text; None is
    what runs before recorded: with truncation, padding and special tokens as its file switches them on, and words counted in
    decoded tokens. Those that are trained here are read alike."""

    vocab_size: Annotated[int, Meta(ge=1, le=1_000_000)] = 2048
    min_frequency: Positive = 2
    sample_fraction: Annotated[float, Meta(gt=0.0, lt=1.0)] | None = None
    artifact: Digest | None = None
    taken_from: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    reading: Literal["plain"] | None = None


class Mixture(Section, frozen=True):
    """Shares of the parts of a :class:`MixtureDataset` among the sequences that are trained on.

    ``weights`` need not sum to one; a part that is not named has none. In every ``block_size`` sequences each part has
    its share to the nearest sequence, spread evenly (:mod:`marin.data.mixture`).
    """

    weights: Annotated[dict[Name, Weight], Meta(min_length=1)]
    block_size: Annotated[int, Meta(ge=1, le=65_536)] = 1024


class Trainer(Section, frozen=True):
    """How long (train steps of this phase), how much at a time, and how often the whole state is recorded."""

    num_steps: Annotated[int, Meta(ge=1, le=100_000_000)] = 240
    batch_size: Positive = 8
    steps_per_segment: Annotated[int, Meta(ge=1, le=256)] = 30
    packing: Literal["isolated"] | None = None
    """Documents stand in sequences one after another. ``isolated``: they do not attend to each other; None: they do."""
    z_loss: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    """What the square of the log of the softmax's sum weighs in a token's training loss (PaLM, arXiv:2204.02311, section 5);
    evaluation is without it."""
    states_at_words: Annotated[tuple[Positive, ...], Meta(min_length=1, max_length=100)] | None = None
    """The state is recorded too by the first train step that has seen so many words, in growing order: words of the text that
    is trained on, between white space, a share of them for each of its tokens (:mod:`marin.training.tokens.words`)."""
    most_epochs: Positive | None = None
    """A training of more epochs of its text, over all phases that read it, is refused before its first train step."""


class Export(Section, frozen=True):
    """How the trained model leaves: a Hugging Face folder."""

    format: Literal["huggingface"] = "huggingface"
    dtype: Literal["float32"] = "float32"


class Recipe(Section, frozen=True):
    """A whole pipeline, raw text to exported model. ``params.yaml`` is one of these."""

    seed: Seed | None = 0
    order: Order | None = None
    """Of the sequences of an epoch; None: that of Levanter's Feistel network, as when there was no other."""
    dataset: Dataset = GrammarDataset()
    tokenizer: Tokenizer = Tokenizer()
    tokens: Tokens = Tokens()
    model: Model = Model()
    optimizer: Optimizer = Optimizer()
    trainer: Trainer = Trainer()
    arithmetic: Arithmetic = Arithmetic()
    evaluation: Evaluation = Evaluation()
    export: Export = Export()
    mixture: Mixture | None = None
    phase: Phase | None = None
    initial: Initial | None = None
    """The model that the training begins with; None: random weights, or in a phase the state before it."""
    lora: Lora | None = None
    """Adapters that are trained in place of the model; None: all of its parameters are."""
    objective: Objective | None = None
    """What is learned of completions and their rewards; None: the next token of the text."""
    exclude: Documents | None = None
    """Documents that are blank in the token stream (:mod:`marin.data.exclusion`), and that the tokenizer has not read."""

    @property
    def parts(self) -> int:
        """What the number of devices has to divide: the logical shards, or under ``exact`` the sequences of a batch."""
        exact = self.arithmetic.profile == "exact"
        return self.trainer.batch_size if exact else self.arithmetic.logical_shards

    @property
    def together(self) -> int:
        """Neighbouring sequences that are always in one batch, in their order: the two answers of a preference; otherwise 1."""
        return 1 if self.lora is None or self.lora.dpo_beta is None else 2

    @property
    def columns(self) -> int:
        """Numbers beside each token that a train step is given: its weight; of a completion its advantage and two
        log-probabilities too (:mod:`marin.training.runtime.objective`)."""
        return 1 if self.objective is None else 4

    @property
    def kept_tokenizer(self) -> str | None:
        """The digest of the tokenizer that is taken over: of the phase before, of the model made elsewhere, or borrowed; None:
        it is trained here, or an input of the step."""
        before = self.phase or self.initial
        return (before.tokenizer if before is not None else None) or self.tokenizer.artifact

    @property
    def vocabulary(self) -> int:
        """Rows of the embedding: as many as the tokenizer is to have tokens, where the model does not say."""
        return self.model.embedding_rows or self.tokenizer.vocab_size

    @property
    def first_step(self) -> int:
        """The number of the first train step: 0, or where the phase begins."""
        return self.phase.first_step if self.phase is not None else 0

    @property
    def last_step(self) -> int:
        """The number of the train step after the last one."""
        return self.first_step + self.trainer.num_steps

    def most_steps(self, tokens: int) -> int | None:
        """Train steps within ``trainer.most_epochs`` of so many tokens, beside what earlier phases took of the same text; none
        where they read what this one does not count."""
        if self.trainer.most_epochs is None:
            return None
        whole = tokens // self.model.seq_len // self.together * self.together
        before, lost = (self.phase.first_sequence, self.phase.uncounted) if self.phase is not None else (0, 0)
        return 0 if lost else max(0, self.trainer.most_epochs * whole - before) // self.trainer.batch_size


class Execution(Section, frozen=True):
    """How this machine executes a recipe. Never part of an identity."""

    devices: Positive = 1
    """In all; on a CPU they are virtual."""
    processes: Positive = 1
    """Processes that train as one, each with an equal part of the devices; more than one needs the runner ``ray``."""
    runner: Literal["local", "ray"] = "local"
    address: str | None = None
    """``host:port`` of a Ray cluster; None for a Ray of this machine, started and ended by itself."""
    accelerator_type: str = ""
    """What Ray calls it (``H100``, ``TPU-V6E``); any where it is empty."""
    topology: str = ""
    """Of one TPU slice (``4x4``)."""
    slices: Positive = 1
    """TPU slices that train as one, each with an equal part of the devices; a training layer by layer holds the state once in
    each of them."""
    tensor_parallel: Positive = 1
    """Devices that share the matrices of each layer, in groups, under profile ``exact``; 1: every device has whole ones."""
    expert_parallel: Positive = 1
    """Devices over which the experts of each layer lie apart, in groups, under profile ``exact``; 1: every device has all."""
    retries: Count = 5
    """How many deaths of each slice in a row, without a train step recorded in between, a training on Ray survives."""
    self_check_every: Count = 0
    """Execute every so many train steps twice and compare, to notice a machine that computes wrongly; 0: never."""
    pack_checkpoints: bool = False
    """Keep training checkpoints tensor by tensor, as what changed since the one before: exact, smaller, slower to read."""
    keep: Keep | None = None
    """Which training checkpoints collection leaves alone; None: all."""
    samplers: Count = 0
    """Processes that draw completions beside the one that trains, where the runner says; 0: it draws by itself."""
    pause_at: Positive | None = None
    """Stop before this train step with the state recorded; the same call without it goes on from there."""
    continues: str | None = None
    """Of which run a phase is the continuation, where several runs reached the state that it begins with."""
    fork: str | None = None
    """Of which run a training takes over the train steps that its exclusion does not concern, as was asked for."""

    @property
    def local_devices(self) -> int:
        """Devices of one process."""
        return self.devices // self.processes


def ends(recipe: Recipe) -> dict[str, object]:
    """The tokens between documents, where they are not those of our own tokenizers: what a step after ``tokens`` reads."""
    found = {name: getattr(recipe.tokens, name) for name in ("begin_of_text", "end_of_text", "stop_tokens")}
    return {name: value for name, value in found.items() if value is not None}


def as_recorded(recipe: Recipe) -> bool:
    """Whether a tokenizer is read with what its file switches on, as before there was ``tokenizer.reading``."""
    return recipe.tokenizer.reading is None


def reading(recipe: Recipe) -> dict[str, object]:
    """How the tokenizer is read, where the recipe says it."""
    return {} if as_recorded(recipe) else {"reading": recipe.tokenizer.reading}


def adapters(recipe: Recipe) -> dict[str, object]:
    """The adapters, where there are some: what a step reads that reads the trained state."""
    return {} if recipe.lora is None else {"lora": plain(recipe.lora)}


def from_plain(value: Any, *, where: str) -> Recipe:
    """The recipe that :func:`plain` wrote; raises :class:`UsageError` when it is of another version or shape."""
    recipe = _typed(unplain(value), where=where)
    check(recipe, where=where)
    return recipe


def from_mapping(data: Any, *, where: str) -> Recipe:
    """A checked recipe from parsed YAML or JSON, as a new one: what a record of it says is this recipe again.

    Raises:
        UsageError: a key is unknown, of the wrong type or out of range; the message holds its path, what is allowed
            and, for a misspelt key, the nearest valid one. Or a value cannot be recorded.
    """
    recipe = _typed(data, where=where)
    check_written(data.get("optimizer"), recipe.optimizer.name, where)
    recipe = msgspec.structs.replace(recipe, optimizer=completed(recipe.optimizer))
    model = recipe.model
    if model.architecture == "gpt2" and model.inner_width is None and model.intermediate_dim != 4 * model.hidden_dim:
        model = msgspec.structs.replace(model, inner_width=model.intermediate_dim)  # said in the exported folder too
        recipe = msgspec.structs.replace(recipe, model=model)
    _check_recorded(recipe, where)
    check_float32(msgspec.to_builtins(recipe), where)
    check(recipe, where=where)
    check_read(recipe.optimizer, where)
    return recipe


def _check_recorded(recipe: Recipe, where: str) -> None:
    """Raises UsageError where the recipe that a run records would be read as another one, or not at all."""
    values = as_written(msgspec.to_builtins(recipe))
    if odd := first_difference(values, unplain(plain(recipe))):
        path, value = odd
        number = isinstance(value, float) and not math.isfinite(value)
        raise UsageError(
            "a value that no record can hold",
            where=f"{where}: {path}",
            expected="a finite number"
            if number
            else "a number below 2^53, a text that does not look like a recorded "
            "number (0x1.8p+1), and no part that is called seed",
            found=repr(value)[:100],
            cure="write a number so large that it never matters, such as 1e9" if number else "write another one",
        )


def _typed(data: Any, *, where: str) -> Recipe:
    """A recipe from builtins, whose values are not held to each other yet.

    Raises:
        UsageError: a key is unknown, of the wrong type or out of range; the message holds its path, what is allowed
            and, for a misspelt key, the nearest valid one.
    """
    if not isinstance(data, Mapping):
        raise UsageError(
            "recipe is not a mapping",
            where=where,
            expected="keys such as seed, dataset, model",
            found=type(data).__name__,
            cure="compare it with the committed params.yaml",
        )
    version = data.get("recipe_version", RECIPE_VERSION)
    if version != RECIPE_VERSION:
        raise UsageError(
            "the recipe is of another version",
            where=f"{where}: recipe_version",
            expected=str(RECIPE_VERSION),
            found=str(version)[:40],
            cure="use the version of Marin that wrote it, or a newer one",
        )
    data = {key: value for key, value in data.items() if key != "recipe_version"}
    if isinstance(optimizer := data.get("optimizer"), Mapping):
        check_name(optimizer.get("name"), where)
    if isinstance(ids := data.get("exclude"), list | tuple) and all(isinstance(one, str) for one in ids):
        data["exclude"] = sorted(set(ids))  # a set of documents has one form
    try:
        recipe = msgspec.convert(data, Recipe)
    except msgspec.ValidationError as error:
        raise _invalid(error, data, where) from None
    except UnicodeEncodeError as error:  # YAML and JSON can write half of a surrogate pair, which is not a character
        raise UsageError(
            "a name or value is no text",
            where=where,
            expected="characters that UTF-8 can write",
            found=ascii(error.object)[:80],
            cure="write the character itself",
        ) from None
    return recipe


def _invalid(error: msgspec.ValidationError, data: Any, where: str) -> UsageError:
    message, _, path = str(error).partition(" - at `$")
    path = path.rstrip("`").lstrip(".")
    unknown = re.search(r"unknown field `([^`]*)`", message)
    value: Any = data
    for part in filter(None, path.split(".")):
        value = value.get(part) if isinstance(value, Mapping) else None
    at = f"{where}: {path}" if path else where
    if unknown:
        name = unknown.group(1)
        valid = _fields_at(path, data)
        near = difflib.get_close_matches(name, valid, n=1)
        cure = f"did you mean {near[0]}?" if near else f"valid keys here: {', '.join(valid)}"
        return UsageError(
            "unknown key",
            where=f"{at}.{name}" if path else f"{at}: {name}",
            expected="a key of the recipe",
            found=name,
            cure=cure,
        )
    expected = _allowed(path, data) or message.removeprefix("Expected ")
    return UsageError(
        "parameter out of range or of the wrong type",
        where=at,
        expected=expected,
        found=repr(value),
        cure="correct it there, or on the command line with KEY=VALUE",
    )


_WORDS = {"integer": "an integer", "number": "a number", "string": "a text"}
_WORDS |= {"boolean": "true or false", "null": "null", "array": "a list", "object": "a mapping"}
_BOUNDS = (
    ("minimum", ">= {}"),
    ("exclusiveMinimum", "> {}"),
    ("maximum", "<= {}"),
    ("exclusiveMaximum", "< {}"),
    ("minLength", "of at least {} characters"),
    ("maxLength", "of at most {} characters"),
    ("minItems", "of at least {} items"),
    ("minProperties", "of at least {} entries"),
    ("pattern", "like {}"),
    ("properties", "of {}"),
)


def _allowed(path: str, data: Mapping[str, Any]) -> str:
    """Every value that the field at ``path`` takes, in words, from the type that is checked; "" where there is none."""
    parent, _, name = path.rpartition(".")
    if path in ("dataset", "dataset.kind"):
        return f"{'a mapping whose kind is ' if path == 'dataset' else ''}one of {', '.join(DATASETS)}"
    struct = _struct_at(parent, data)
    fields = msgspec.structs.fields(struct) if struct else ()
    schema = next((msgspec.json.schema(field.type) for field in fields if field.encode_name == name), {})
    sections, parts = schema.get("$defs", {}), []
    for option in schema.get("anyOf", [schema]):
        option = sections.get(option.get("$ref", "").rpartition("/")[2], option)
        if "enum" in option:
            one = "one of " if len(option["enum"]) > 1 else ""
            parts.append(one + ", ".join(map(str, option["enum"])))
        elif option.get("type") in _WORDS:
            told = option | {"properties": ", ".join(option.get("properties", ()))}
            bounds = [words.format(told[key]) for key, words in _BOUNDS if key in option]
            parts.append(" ".join([_WORDS[option["type"]], " and ".join(bounds)]).strip())
    return " or ".join(parts)


def _fields_at(path: str, data: Mapping[str, Any]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(found)] if (found := _struct_at(path, data)) else []


def _struct_at(path: str, data: Mapping[str, Any]) -> type[Struct] | None:
    struct: type[Struct] | None = Recipe
    node: Any = data
    for part in filter(None, path.split(".")):
        node = node.get(part) if isinstance(node, Mapping) else None
        if part == "dataset":
            kind = node.get("kind") if isinstance(node, Mapping) else None
            struct = DATASETS.get(str(kind))
        elif struct is not None:
            found = {field.name: field.type for field in msgspec.structs.fields(struct)}.get(part)
            kinds = (kind for kind in (found, *get_args(found)) if isinstance(kind, type) and issubclass(kind, Struct))
            struct = next(kinds, None)
    return struct


def check(recipe: Recipe, *, where: str) -> None:
    """Refuse what is well-typed and still impossible.

    Raises:
        UsageError: sizes do not divide each other; a mixture without its parts; a profile without its device kind.
        Unsupported: the flags allow bits that no other machine has.
    """
    model, arithmetic, trainer = recipe.model, recipe.arithmetic, recipe.trainer

    def divides(small: int, large: int, small_name: str, large_name: str) -> None:
        if large % small:
            raise UsageError(
                "sizes do not divide",
                where=f"{where}: {large_name}",
                expected=f"a multiple of {small_name} ({small})",
                found=str(large),
                cure=f"change {large_name} or {small_name}",
            )

    if model.head_dim is None:
        divides(model.num_heads, model.hidden_dim, "model.num_heads", "model.hidden_dim")
    divides(model.num_kv_heads, model.num_heads, "model.num_kv_heads", "model.num_heads")
    divides(arithmetic.logical_shards, trainer.batch_size, "arithmetic.logical_shards", "trainer.batch_size")
    share, of = trainer.batch_size // arithmetic.logical_shards, "trainer.batch_size / arithmetic.logical_shards"
    divides(arithmetic.microbatch_size, share, "arithmetic.microbatch_size", of)
    if not model.inner:
        raise UsageError(
            "an inner layer without a number",
            where=f"{where}: model.intermediate_dim",
            expected=f"at least model.hidden_dim ({model.hidden_dim}), or model.inner_width",
            found=str(model.intermediate_dim),
            cure="set model.inner_width",
        )
    # Sizes before what rests on them: a message is about the first thing that is wrong.
    check_head(model, where)
    check_experts(recipe, where)
    check_optimizer(recipe, where)
    _check_scale(recipe, where)
    check_schedule(recipe, where)
    if recipe.tokenizer.artifact is None and recipe.tokenizer.vocab_size < LEAST_TRAINED and recipe.initial is None:
        raise UsageError(
            "parameter out of range or of the wrong type",
            where=f"{where}: tokenizer.vocab_size",
            expected=f"an integer >= {LEAST_TRAINED}: every byte, the end of a text, and a piece",
            found=str(recipe.tokenizer.vocab_size),
            cure="correct it there, or on the command line with KEY=VALUE",
        )
    if recipe.initial is not None and (recipe.phase is not None or recipe.exclude is not None):
        raise UsageError(
            "settings that do not go together",
            where=f"{where}: initial",
            found="phase" if recipe.phase is not None else "exclude",
            expected="no phase, and no exclude, which makes a tokenizer",
            cure="drop one",
        )
    if recipe.exclude is not None and recipe.tokens.artifact is not None:
        raise UsageError(
            "settings that do not go together",
            where=f"{where}: exclude",
            expected="none: tokens.artifact has no documents that an id could name",
            found=f"{len(recipe.exclude)} documents",
            cure="make the tokens without them, or train on a corpus",
        )
    _check_mixture(recipe, where)
    _check_words(recipe, where)
    _check_preferences(recipe, where)
    check_objective(recipe, where)
    check_contract(arithmetic, where)
    parts = recipe.dataset.parts if isinstance(recipe.dataset, MixtureDataset) else ()
    check_evaluation(recipe.evaluation, trainer.steps_per_segment, parts, where)


def _check_scale(recipe: Recipe, where: str) -> None:
    arithmetic, length = recipe.arithmetic, recipe.model.seq_len
    by_layer, block = arithmetic.gather == "layer", min(arithmetic.attention_block or length, length)
    model, exact = recipe.model, arithmetic.profile == "exact"
    across = f"optimizer=adamw or lion: {recipe.optimizer.name} looks across whole tensors"
    parts = "gather=layer and another profile than exact"
    rotary = {"model.rope": model.rope, "model.rope_theta": model.rope_theta, "model.rope_factor": model.rope_factor}
    together = (
        ("arithmetic.gather", arithmetic.gather, across, recipe.optimizer.elementwise),
        ("lora", recipe.lora, "gather=null and another profile than exact", not by_layer and not exact),
        (
            "arithmetic.attention",
            arithmetic.attention,
            "profile=tpu and gather=layer",
            arithmetic.profile == "tpu" and by_layer,
        ),
        (
            "arithmetic.attention",
            arithmetic.attention,
            f"attention_block, and sequences of whole blocks of 128 or more (model.seq_len is {length})",
            arithmetic.attention_block is not None and length % block == 0 and block % 128 == 0,
        ),
        (
            "arithmetic.attention_block",
            arithmetic.attention_block,
            "attention=splash",
            arithmetic.attention is not None,
        ),
        ("arithmetic.loss_block", arithmetic.loss_block, parts, by_layer and not exact),
        ("arithmetic.loss_vocabulary", arithmetic.loss_vocabulary, parts, by_layer and not exact),
        (
            "arithmetic.matmul_precision",
            None if arithmetic.matmul_precision == "highest" else arithmetic.matmul_precision,
            "compute_dtype=bfloat16 on an accelerator",
            arithmetic.compute_dtype == "bfloat16" and arithmetic.profile in ("gpu", "tpu"),
        ),
        *(
            (name, value, "an architecture that is not gpt2", model.architecture != "gpt2")
            for name, value in rotary.items()
        ),
        ("model.rope_factor", model.rope_factor, "rope=llama3", model.rope == "llama3"),
        ("trainer.most_epochs", recipe.trainer.most_epochs, "mixture=null", recipe.mixture is None),  # its parts differ
        (
            "optimizer.decay",
            recipe.optimizer.decay,
            "schedule=linear or cosine",
            recipe.optimizer.schedule != "constant",
        ),
    )
    for name, value, expected, fits in together:
        if value is not None and not fits:
            raise UsageError(
                "settings that do not go together",
                where=f"{where}: {name}",
                expected=f"null, or {expected}",
                found=str(value),
                cure=f"drop {name}, or choose {expected}",
            )


def _check_words(recipe: Recipe, where: str) -> None:
    words = recipe.trainer.states_at_words
    if words is None:
        return
    if list(words) != sorted(set(words)) or recipe.mixture is not None:
        raise UsageError(
            "numbers of words that a training does not reach in this order",
            where=f"{where}: trainer.states_at_words",
            expected="growing numbers; null in a mixture, whose parts have other tokens a word",
            found=f"{len(words)} numbers" + (" and a mixture" if recipe.mixture is not None else ""),
            cure="sort them, or set it to null",
        )


def _check_preferences(recipe: Recipe, where: str) -> None:
    """What is prepared for a training on preferences is for no other, and the other way round."""
    data = recipe.dataset
    given = [one for one in parts(data).values() if isinstance(one, FilesDataset) and one.preferences]
    if not given and recipe.together == 1:
        return
    beta = recipe.lora.dpo_beta if recipe.lora is not None else None
    sequences = recipe.arithmetic.microbatch_size
    alone = isinstance(data, FilesDataset) and bool(data.preferences and data.chat)
    for name, value, expected, fits in (
        ("lora.dpo_beta", beta, "a number, such as 0.1, where dataset.preferences is true", beta is not None),
        ("dataset", data.name, "one data set with preferences=true and chat=true", alone),
        ("exclude", recipe.exclude, "null: a preference has two documents", recipe.exclude is None),
        ("trainer.z_loss", recipe.trainer.z_loss, "null: DPO's loss has none", recipe.trainer.z_loss is None),
        ("arithmetic.microbatch_size", sequences, "an even number: two sequences are a preference", sequences % 2 == 0),
    ):
        if not fits:
            raise UsageError(
                "preferences and their loss belong together",
                where=f"{where}: {name}",
                expected=expected,
                found=str(value),
                cure="docs/lab.md has a command with values that fit each other",
            )


def _check_mixture(recipe: Recipe, where: str) -> None:
    parts = sorted(recipe.dataset.parts) if isinstance(recipe.dataset, MixtureDataset) else []
    if not parts and recipe.mixture is None:
        return
    if recipe.mixture is None or not parts:
        raise UsageError(
            "a mixture needs parts and weights",
            where=f"{where}: {'mixture' if parts else 'dataset.kind'}",
            expected="dataset.kind=mixture together with mixture.weights",
            found="no mixture.weights" if parts else "one data set",
            cure=f"give mixture.weights for {', '.join(parts)}" if parts else "drop mixture, or give dataset.parts",
        )
    unknown = sorted(recipe.mixture.weights.keys() - set(parts))
    if unknown:
        raise UsageError(
            "a weight for a part that is not there",
            where=f"{where}: mixture.weights",
            expected=", ".join(parts),
            found=", ".join(unknown),
            cure="name the parts as dataset.parts does",
        )
    block_counts(recipe.mixture.weights, recipe.mixture.block_size, where=f"{where}: mixture.weights")
