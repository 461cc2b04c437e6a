"""What every part of a recipe is made of: its base, and the ranges of its values; and where a training begins."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

Positive = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Rate = Annotated[float, Meta(ge=0.0, le=1.0)]
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$")]
Weight = Annotated[float, Meta(ge=0.0, le=1e6)]
Order = Literal["swap-or-not"]
"""In which an epoch sees its sequences, keyed by the seed (:mod:`marin.training.permutation`). A recipe that names none has
that of Levanter's Feistel network, as when there was no other."""
DocumentId = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Documents = Annotated[tuple[DocumentId, ...], Meta(min_length=1, max_length=500)]
"""Ids of documents as `marin data list RUN` shows them, each once, in order."""


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every part of a recipe: immutable, keyword-only, no unknown keys."""


class Artifact(Section, frozen=True):
    """What stands where the pipeline would make something of its own: an artifact of the store, by its digest.

    ``address`` is the readable name of the step that has it as its output, in an experiment file. ``maker`` is the
    name of that step's function, which a verifier may execute again; None: the artifact was made elsewhere and adopted.
    ``digest`` is None where the artifact is an input of the step instead, and not made yet.
    """

    address: Annotated[str, Meta(min_length=1, max_length=160)]
    digest: Digest | None = None
    maker: str | None = None


class Phase(Section, frozen=True):
    """Where a run continues from another run's state (:mod:`marin.execution.phases` fills it in; None: a run from the
    beginning).

    Train steps are numbered through all phases: this one begins with ``first_step``, when ``first_sequence`` sequences
    were consumed, ``consumed`` of each part of this phase's data. ``state`` is the digest of that state and
    ``tokenizer`` the content of the tokenizer that is kept; both are None where they are inputs of the step instead.
    ``schedule``: the learning rate's warm-up and decay begin anew, or go on as if the run had been planned up to the
    end of this phase.
    """

    first_step: Count = 0
    first_sequence: Count = 0
    consumed: dict[Name, Count] = msgspec.field(default_factory=dict)
    schedule: Literal["restart", "continue"] = "restart"
    state: Digest | None = None
    tokenizer: Digest | None = None

    @property
    def uncounted(self) -> int:
        """Sequences of the phases before that ``consumed`` does not have: of another data set, in another cut or by another
        seed. How often they read this phase's text nothing here says."""
        return max(0, self.first_sequence - sum(self.consumed.values()))


class Lora(Section, frozen=True, kw_only=True):
    """Low-rank adapters (LoRA, arXiv:2106.09685) beside every matrix of the layers; nothing else is trained.

    An adapter adds ``alpha / rank`` times the product of two matrices of ``rank``; they are merged into what is exported.
    ``dpo_beta``: what is learned is which answer people prefer (DPO, arXiv:2305.18290, whose beta this is), of a data set of
    ``preferences``; the reference is the model without its adapters.
    """

    rank: Annotated[int, Meta(ge=1, le=1024)] = 8
    alpha: Annotated[float, Meta(gt=0.0, le=65_536.0)] = 8.0
    dpo_beta: Annotated[float, Meta(gt=0.0, le=100.0)] | None = None


class Initial(Section, frozen=True, kw_only=True):
    """A model that was made elsewhere, with whose parameters a training begins: a Hugging Face folder in the store.

    ``model`` is the tree of its configuration and tensors, ``tokenizer`` that of its tokenizer's files as they are; ``name``
    says where they were taken from. Optimizer, key and the order of the data are those of a run from the beginning.
    """

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    model: Digest
    tokenizer: Digest


class Tokens(Section, frozen=True):
    """How documents become a stream of tokens: concatenated, each ended by the end-of-text token."""

    append_eos: bool = True
    artifact: Artifact | None = None
    """Token caches that are in the store, in place of those that the step ``tokens`` would encode."""
    begin_of_text: Count | None = None
    """The token after which a text begins where nothing stands before it; None: that of the end."""
    end_of_text: Count | None = None
    """The token that ends a document; None: the first, as in every tokenizer that is trained here."""
    stop_tokens: tuple[Count, ...] | None = None
    """The tokens each of which ends a text that is generated, as a folder from elsewhere names them; None: that which ends a
    document."""

    @property
    def begin(self) -> int:
        """The id of the token before a text that nothing precedes."""
        return self.end if self.begin_of_text is None else self.begin_of_text

    @property
    def end(self) -> int:
        """The id of the token after a document."""
        return self.end_of_text or 0

    @property
    def stops(self) -> tuple[int, ...]:
        """The ids of the tokens that end a text which is generated."""
        return (self.end,) if self.stop_tokens is None else self.stop_tokens


class Keep(Section, frozen=True):
    """Which training checkpoints are kept: the newest ``last``, and every so many train steps one (0: no others)."""

    every: Count = 0
    last: Positive = 1
