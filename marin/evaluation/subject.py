"""What is evaluated: a recorded state of a run with its tokenizer, proven to be the one that the ledger names.

A Hugging Face folder as one is in :mod:`marin.evaluation.folder_subject`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from levanter.models.lm_model import LmHeadModel

from ledger import StateManifest, Store
from marin.data.borrowed import trial
from marin.data.borrowed.chats import model_template, special_tokens
from marin.data.template import SPECIAL, ChatTemplate, plain_template, template_of
from marin.data.tokenizer import FILE as TOKENIZER
from marin.data.tokenizer import Tokenizer, open_tokenizer
from marin.errors import UsageError
from marin.evaluation.marks import Marks, marks_of
from marin.execution.continued import checkout
from marin.history.run import Run
from marin.process.cache import compilation_cache
from marin.recipe.schema import Recipe, as_recorded
from marin.record import outputs
from marin.record.events import CheckpointSaved
from marin.training.checkpoints.whole import load, proven
from marin.training.imported import imported_state
from marin.training.initial import initial_state
from marin.training.model import vocabulary_size
from marin.training.runtime import canary
from marin.training.runtime.compilation import use_compilation_cache
from marin.training.runtime.parts import plain_model
from marin.training.state import TrainState, manifest_of

LOOKED_BACK = 16
"""Tokens before new ones that their text is read with."""


@dataclass(frozen=True)
class Subject:
    """``state``: digest of the whole training state, before train step ``step``; the model is its parameters.
    ``tokenizer_digest``: of the tokenizer's output."""

    run: str
    recipe: Recipe
    model: LmHeadModel
    tokenizer: Tokenizer
    state: str
    step: int
    tokenizer_digest: str
    template: ChatTemplate | None = field(default_factory=plain_template)
    """How messages become a prompt; None: a folder that has none."""
    special: Mapping[str, str] = field(default_factory=lambda: SPECIAL)
    """The special tokens that have a name, for another template."""
    marks: Marks | None = None
    """What the tokenizer's own files put around a text; None: nothing."""
    earlier: ChatTemplate | None = None
    """The template of chats that were recorded by rules before 4; None: ``template``."""

    def encode(self, text: str) -> list[int]:
        """Tokens of ``text``, nothing put in front."""
        return [int(token) for token in self.tokenizer.encode(text, add_special_tokens=False).ids]

    def decode(self, tokens: tuple[int, ...], after: tuple[int, ...] = ()) -> str:
        """As :meth:`text`, without an end of text at their end."""
        return self.text(tokens[:-1] if tokens and tokens[-1] in self.recipe.tokens.stops else tokens, after)

    def text(self, tokens: tuple[int, ...], after: tuple[int, ...] = ()) -> str:
        """The text of ``tokens``. ``after``: the tokens that they go on with; a decoder may make another text of a token where it
        is the first (SentencePiece's without its space, WordPiece's with its ``##``)."""
        alone = str(self.tokenizer.decode(list(tokens), skip_special_tokens=False))
        if not after or self.tokenizer.gives_back:
            return alone
        before = after[-LOOKED_BACK:]
        lead = str(self.tokenizer.decode(list(before), skip_special_tokens=False))
        whole = str(self.tokenizer.decode([*before, *tokens], skip_special_tokens=False))
        if not whole.startswith(lead):  # a letter that the new tokens complete
            lead = lead.rstrip("\ufffd")
        return whole[len(lead) :] if whole.startswith(lead) else alone


def open_subject(run: Run, store: Store, step: int | None = None) -> Subject:
    """The state of ``run`` before train step ``step``, or the one that its training ended with. The one that it began with is
    recorded by its digest alone: it is made again. The arithmetic contract is in force when this is called.

    Raises:
        UsageError: no state of that step is recorded.
        MissingEvidence: the run has no such output.
        Tampered: the stored bytes are not what is recorded.
        Unsupported: this machine does not compute the bits of the contract.
    """
    recipe = run.recipe
    use_compilation_cache(compilation_cache())
    canary.check(recipe.arithmetic)
    with TemporaryDirectory(prefix="marin-evaluate-") as base:
        folder = Path(base)
        made = run.output("tokenizer")
        outputs.checkout(store, made, folder / "tokenizer", kind=outputs.KINDS["tokenizer"])
        if (content := folder / "tokenizer" / TOKENIZER).is_file():
            trial.check(content.read_bytes(), where=f"tokenizer of run {run.run}")
        vocab = vocabulary_size(folder / "tokenizer", recipe.model)
        tokenizer = open_tokenizer(folder / "tokenizer", as_recorded=as_recorded(recipe))
        special, template = special_tokens(folder / "tokenizer"), model_template(recipe, folder / "tokenizer")
        if step is None:
            trained = run.output("train")
            outputs.checkout(store, trained, folder / "train", kind=outputs.KINDS["train"])
            digest = StateManifest.parse((folder / "train" / "state.json").read_bytes()).digest
            state, _ = load(folder / "train" / "checkpoint", recipe, vocab, digest, where="output of step train")
        elif (begun := run.begun) is not None and step == begun.step and begun.made_again:
            digest = begun.state
            state = _first(recipe, store, vocab, folder, digest)
        else:
            saved = _saved(run, step)
            store.checkout(saved.artifact, folder / "checkpoint")
            digest, what = saved.state, f"training checkpoint of train step {step}"
            state, _ = load(folder / "checkpoint", recipe, vocab, digest, where=what)
        marks = marks_of(tokenizer, recipe.tokens.begin, recipe.tokens.end)
    return Subject(
        run.run,
        recipe,
        plain_model(recipe, state.model),
        tokenizer,
        digest,
        int(state.step),
        made.digest,
        template,
        special,
        marks,
        template_of(recipe.dataset, special),
    )


def _first(recipe: Recipe, store: Store, vocab: int, folder: Path, digest: str) -> TrainState:
    """The state that a training begins with, as the recipe draws it or with the parameters of a folder from elsewhere."""
    if recipe.initial is None:
        state = initial_state(recipe, vocab)
    else:
        state = imported_state(recipe, vocab, checkout(store, recipe.initial.model, folder / "initial") / "checkpoint")
    proven(manifest_of(state), digest, "state that the training begins with")
    return state


def _saved(run: Run, step: int) -> CheckpointSaved:
    found = {fact.body.step: fact.body for fact in run.checkpoints}
    begun = [run.begun.step] if run.begun is not None and run.begun.made_again else []
    if step not in found:
        raise UsageError(
            "no state of this train step is recorded",
            where=f"run {run.run}, --step {step}",
            expected=", ".join(str(number) for number in sorted([*begun, *found])) or "a run with training checkpoints",
            found=str(step),
            cure="name one of these, or leave --step out for the last state",
        )
    return found[step]
