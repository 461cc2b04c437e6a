"""The trained model of a run, proven against its record, and text from it.

Jax begins under the arithmetic contract of the run's recipe: where it has begun already under another one, that is said.
Text is drawn in the same way as by an evaluation: the same prompt and seed give the same text on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ledger import Store
from marin.errors import UsageError
from marin.history.run import Run
from marin.process.arithmetic import apply
from marin.process.cache import compilation_cache, own_folder
from marin.process.waiting import waiting
from marin.provenance.extras import need
from marin.recipe.schema import Execution


def trained(
    view: Run, store: Store, importing: Callable[[], AbstractContextManager[None]] = nullcontext
) -> tuple[Any, Any]:
    """The Levanter model, whose state has the recorded digest, and its tokenizer. ``importing`` is entered while jax and
    Levanter are imported.

    Raises:
        MissingEvidence: the run has no trained state or no tokenizer yet.
        Tampered: the stored bytes are not what was recorded.
        Unsupported: this machine does not compute the bits of the contract.
        NotInstalled: the extra that trains is not installed.
    """
    need("jax", "levanter", "tokenizers")
    apply(view.recipe.arithmetic, Execution())
    with waiting("importing jax and Levanter"), importing():
        from marin.evaluation.subject import open_subject  # jax, after the contract is in force

    with waiting("restoring the trained state"):
        subject = open_subject(view, store)
    return subject.model, subject.tokenizer


def speaker(view: Run, model: Any) -> Any:
    """The compiled programs of a model (:class:`marin.evaluation.scoring.Scorer`), to be kept for the next text."""
    from marin.evaluation.programs import ProgramCache
    from marin.evaluation.scoring import Scorer
    from marin.training.runtime.compilation import use_compilation_cache

    use_compilation_cache(compilation_cache())
    return Scorer(model, view.recipe, programs=ProgramCache(own_folder("programs"), model, view.recipe))


def continued(
    view: Run, programs: Any, tokenizer: Any, prompt: str, *, max_tokens: int, temperature: float, seed: int
) -> str:
    """The prompt and what the model says after it, until it ends the text or has said so many tokens. ``programs`` are
    those of :func:`speaker`.

    Raises:
        UsageError: the prompt has no token, or leaves no room in the model's context.
    """
    from marin.evaluation.scoring import Prompt, request_name

    recipe = view.recipe
    tokens = (recipe.tokens.begin, *tokenizer.encode(prompt, add_special_tokens=False).ids)
    room = recipe.model.seq_len - len(tokens)
    if room < 1:
        raise UsageError(
            "the prompt is too long",
            where="prompt",
            expected=f"at most {recipe.model.seq_len - 2} tokens",
            found=str(len(tokens) - 1),
            cure="shorten it",
        )
    asked = Prompt(tokens, min(max_tokens, room), lambda new: False, temperature, request_name(tokens))
    with waiting("compiling and drawing text"):
        (new,) = programs.generate([asked], seed)
    said: str = tokenizer.decode([*tokens[1:], *new], skip_special_tokens=True)
    return said
