"""The steps of the pipeline as experiments use them: each builds on the one before, so a recipe is said once.

    corpus = default_corpus("grammar", GrammarDataset(train_bytes=300_000))
    tokens = default_tokenize("grammar-bpe512", corpus, vocab_size=512)
    model = default_train("nano-seed1", tokens, model=NANO, trainer=Trainer(num_steps=60), seed=1)
    numbers = default_eval(model)

The first argument is the last part of the address (``tokens/grammar-bpe512``): for people, never part of an identity.
What is not said has the recipe's default. The steps are those of `dvc repro`: a result of either is a hit for the
other.
"""

from __future__ import annotations

from msgspec.structs import replace

from marin.errors import UsageError
from marin.execution.phases import successor
from marin.execution.step import ARTIFACT, PREVIOUS
from marin.graph import Adopted, Ref, Resources, Step
from marin.graph.identity import step_name
from marin.pipeline.corpus import CORPUS
from marin.pipeline.evaluate import EVALUATE
from marin.pipeline.export import EXPORT
from marin.pipeline.tokenizer import TOKENIZER
from marin.pipeline.tokens import TOKENS
from marin.pipeline.train import TRAIN
from marin.recipe.objective import check_verdict
from marin.recipe.schema import (
    Arithmetic,
    Artifact,
    ArtifactDataset,
    Dataset,
    Evaluation,
    Export,
    FilesDataset,
    Mixture,
    Model,
    Objective,
    Optimizer,
    Recipe,
    Tokenizer,
    Tokens,
    Trainer,
    check,
)
from marin.recipe.section import Order


def default_corpus(name: str, dataset: Dataset) -> Step:
    """Documents in two splits, from a grammar, a pinned URL or files of one's own."""
    return Step(f"corpus/{name}", CORPUS, Recipe(dataset=dataset))


def default_tokenize(
    name: str, corpus: Step, *, vocab_size: int = 2048, min_frequency: int = 2, append_eos: bool = True
) -> Step:
    """A byte-level BPE trained on the corpus, and both splits as token caches.

    ``corpus`` may be a step of one's own, or an adopted artifact: a folder with ``train.jsonl`` and
    ``validation.jsonl`` in the form of the pipeline's corpus.
    """
    corpus = _corpus_of(corpus)
    recipe = replace(
        corpus.config,
        tokenizer=Tokenizer(vocab_size=vocab_size, min_frequency=min_frequency),
        tokens=Tokens(append_eos=append_eos),
    )
    tokenizer = Step(f"tokenizer/{name}", TOKENIZER, recipe, {"corpus": corpus})
    return Step(f"tokens/{name}", TOKENS, recipe, {"corpus": corpus, "tokenizer": tokenizer})


def default_train(
    name: str,
    tokens: Step,
    *,
    model: Model,
    seed: int,
    order: Order | None = "swap-or-not",
    trainer: Trainer | None = None,
    optimizer: Optimizer | None = None,
    arithmetic: Arithmetic | None = None,
    mixture: Mixture | None = None,
    resources: Resources | None = None,
    apart: str = "",
    tokenizer: Step | None = None,
    evaluation: Evaluation | None = None,
) -> Step:
    """A training, recorded segment by segment. ``evaluation`` says what is measured of recorded states on the way (its ``every``
    and ``sets``), which changes no bit. ``mixture`` are the shares of a data set that has parts; ``apart`` makes
    it an execution of its own although an equal one may be recorded. ``tokens`` may be a step of one's own, or an
    adopted artifact: token caches ``train`` and ``validation``; then ``tokenizer`` is the pipeline's step that their
    ids are of (default: the input of that name). ``order``: None for Levanter's, as experiments had that were registered before
    there was another.

    Raises:
        UsageError: sizes that do not fit each other.
    """
    tokens = _tokens_of(tokens, tokenizer)
    recipe = replace(
        tokens.config,
        model=model,
        seed=seed,
        order=order,
        trainer=trainer or Trainer(),
        optimizer=optimizer or Optimizer(),
        arithmetic=arithmetic or Arithmetic(),
        mixture=mixture,
        evaluation=evaluation or tokens.config.evaluation,
    )
    check(recipe, where=f"step train/{name}")
    return Step(
        f"train/{name}",
        TRAIN,
        recipe,
        {"tokens": tokens, "tokenizer": tokens.inputs["tokenizer"]},
        resources or Resources(cpus=recipe.arithmetic.threads),
        apart=apart,
    )


def default_sft(
    name: str,
    base: Step,
    *,
    globs: tuple[str, ...],
    chat_template: str | None = None,
    trainer: Trainer | None = None,
    optimizer: Optimizer | None = None,
    resources: Resources | None = None,
) -> Step:
    """Fine-tuning on conversations: a phase that continues ``base`` on JSON lines of ``messages``, written as a text by
    ``chat_template`` (Jinja), in which only what the assistant says is learned. Otherwise it is training, with another data
    set and another configuration. ``trainer.packing="isolated"``: conversations in one sequence do not attend to each other.

    Raises:
        UsageError: a change that the state does not survive.
    """
    chat = FilesDataset(name="chat", globs=globs, chat=True, chat_template=chat_template, chat_reference="transformers")
    return default_continue(
        name,
        base,
        dataset=chat,
        trainer=trainer,
        optimizer=optimizer or Optimizer(learning_rate=1e-3, warmup_steps=2),
        resources=resources,
    )


def default_eval(train: Step, evaluation: Evaluation | None = None) -> Step:
    """Validation loss, perplexity and minimal pairs of a trained state. What ``train`` measures on the way stays."""
    during: Evaluation = train.config.evaluation
    asked = evaluation or during
    if asked.every is None:
        asked = replace(asked, every=during.every, sets=during.sets, tasks=during.tasks)
    recipe = replace(train.config, evaluation=asked)
    tokens = train.inputs["tokens"]
    assert isinstance(tokens, Step), "default_train takes whole outputs"
    inputs = {
        "train": train,
        "tokens": tokens,
        "tokenizer": train.inputs["tokenizer"],
        "corpus": tokens.inputs["corpus"],
    }
    return Step(
        f"evaluate/{_last(train)}",
        EVALUATE,
        recipe,
        inputs | _given(train, PREVIOUS),
        Resources(cpus=recipe.arithmetic.threads),
        apart=train.apart,
    )


def default_export(train: Step, export: Export | None = None) -> Step:
    """A trained state as a Hugging Face folder."""
    recipe = replace(train.config, export=export or Export())
    inputs = {"train": train, "tokenizer": train.inputs["tokenizer"]}
    return Step(f"export/{_last(train)}", EXPORT, recipe, inputs | _given(train, PREVIOUS), apart=train.apart)


def default_continue(
    name: str,
    train: Step,
    *,
    dataset: Dataset | None = None,
    mixture: Mixture | None = None,
    trainer: Trainer | None = None,
    optimizer: Optimizer | None = None,
    arithmetic: Arithmetic | None = None,
    objective: Objective | None = None,
    resources: Resources | None = None,
) -> Step:
    """A phase: the training goes on from the last state of ``train`` with what is given changed, the rest as it was.
    The tokenizer is kept, and what was consumed of data that stays is not seen again. With an ``objective``
    (docs/rl.md) it learns from rewards, and ``arithmetic`` is that of profile exact; with a ``dataset`` or a ``mixture`` and
    no ``objective`` it learns from their texts, whatever it learned from before.

    Raises:
        UsageError: a change that the state does not survive.
    """
    before: Recipe = train.config
    changed = replace(
        before,
        phase=None,
        dataset=dataset or before.dataset,
        tokens=before.tokens if dataset is None else replace(before.tokens, artifact=None),
        mixture=mixture or before.mixture,
        trainer=trainer or before.trainer,
        optimizer=optimizer or before.optimizer,
        arithmetic=arithmetic or before.arithmetic,
        objective=objective or (before.objective if dataset is None and mixture is None else None),
    )
    recipe = successor(before, changed)
    check_verdict(recipe, where=f"step train/{name}")
    tokens = train.inputs["tokens"]
    assert isinstance(tokens, Step), "default_train takes whole outputs"
    previous: dict[str, Step | Ref] = {PREVIOUS: train}
    texts = tokens.inputs["corpus"]
    assert isinstance(texts, Step), "default_tokenize takes whole outputs"
    taken = [_given(step, ARTIFACT) if dataset is None else {} for step in (texts, tokens)]
    corpus = Step(f"corpus/{name}", CORPUS, recipe, previous | taken[0])
    tokenizer = Step(f"tokenizer/{name}", TOKENIZER, recipe, {"corpus": corpus} | previous)
    continued = Step(f"tokens/{name}", TOKENS, recipe, {"corpus": corpus, "tokenizer": tokenizer} | previous | taken[1])
    return Step(
        f"train/{name}",
        TRAIN,
        recipe,
        {"tokens": continued, "tokenizer": tokenizer} | previous,
        resources or Resources(cpus=recipe.arithmetic.threads),
        apart=train.apart,
    )


def default_without(name: str, train: Step, documents: tuple[str, ...], *, apart: str = "") -> Step:
    """The same training, from the same corpus, of a recipe that excludes documents: what `marin unlearn` makes of the run
    of ``train`` is a hit for it. ``apart``: executed by itself, from the beginning."""
    recipe = replace(train.config, exclude=tuple(sorted(documents)))
    tokens = train.inputs["tokens"]
    assert isinstance(tokens, Step), "default_train takes whole outputs"
    corpus = {"corpus": tokens.inputs["corpus"]}
    tokenizer = Step(f"tokenizer/{name}", TOKENIZER, recipe, corpus)
    made = Step(f"tokens/{name}", TOKENS, recipe, corpus | {"tokenizer": tokenizer})
    return Step(f"train/{name}", TRAIN, recipe, {"tokens": made, "tokenizer": tokenizer}, train.resources, apart=apart)


def _corpus_of(made: Step) -> Step:
    """The pipeline's corpus over what a step of one's own made; a corpus of the pipeline as it is."""
    if made.fn is CORPUS:
        return made
    dataset = ArtifactDataset(name=_last(made).replace("/", "-") or made.name, artifact=_artifact(made))
    return Step(f"{made.name}/documents", CORPUS, Recipe(dataset=dataset), {ARTIFACT: made})


def _tokens_of(made: Step, tokenizer: Step | None) -> Step:
    """The pipeline's tokens over what a step of one's own made; tokens of the pipeline as they are."""
    if made.fn is TOKENS:
        return made
    given = tokenizer or made.inputs.get("tokenizer")
    if not isinstance(given, Step) or given.fn is not TOKENIZER:
        raise UsageError(
            "tokens without the tokenizer that they are of",
            where=f"step {made.name}",
            expected="an input tokenizer, or tokenizer=..., that is a step of the pipeline",
            found="none" if given is None else "something else",
            cure='write tokenizer=default_tokenize(...).inputs["tokenizer"]',
        )
    recipe = replace(given.config, tokens=replace(given.config.tokens, artifact=_artifact(made)))
    inputs = {"corpus": given.inputs["corpus"], "tokenizer": given}
    return Step(f"{made.name}/caches", TOKENS, recipe, inputs | {ARTIFACT: made})


def _artifact(made: Step) -> Artifact:
    return Artifact(address=made.name, maker=None if isinstance(made.fn, Adopted) else step_name(made))


def _given(step: Step, name: str) -> dict[str, Step | Ref]:
    """The input ``name`` of a step, if it has one: the training that a phase continues, or what makes an artifact."""
    return {name: step.inputs[name]} if name in step.inputs else {}


def _last(step: Step) -> str:
    """The address without its first part."""
    return step.name.partition("/")[2]
