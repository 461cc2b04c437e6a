"""How many words and epochs a training has seen: of the text of its train split, between white space, a share for each token.

Sequences are cut without regard to words and come in a drawn order, so what is exact is the share: words of the split over its
tokens. Over an epoch it is every word once: each whole sequence of the token stream, cut into ``model.seq_len``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from fractions import Fraction
from itertools import batched, pairwise
from pathlib import Path

from ledger import StoredFolder
from marin.data.tokenizer import load_tokenizer
from marin.errors import UsageError
from marin.recipe.schema import Recipe, as_recorded
from marin.tensors.token_caches import WORDS_FILE, read_words
from marin.training.tokens.cache import Cache, count_tokens, read_tokens

_AT_ONCE = 1024
"""Documents that are decoded at a time."""


def words_a_token(tokenizer: Path, cache: Cache, *, as_recorded: bool = False) -> Fraction:
    """Words of a train split for each of its tokens: as they were counted in the text, or where decoding gives a text back, in
    the tokens. ``tokenizer``, ``cache``: their folders; ``as_recorded``: in decoded tokens, whatever these are.

    Raises:
        UsageError: nothing counted them, and tokens do not tell them.
    """
    if (counted := _counted_words(cache)) is not None:
        return Fraction(counted, count_tokens(cache))
    library = load_tokenizer(tokenizer, as_recorded=as_recorded)
    if not as_recorded and not library.gives_back:
        raise UsageError(
            "words that tokens do not tell",
            where="trainer.states_at_words",
            expected="tokens that were made of the corpus here, or a tokenizer whose decoding gives a text back",
            found="tokens of a tokenizer that does not keep white space",
            cure="leave tokens.artifact out, so that words are counted in the text",
        )
    tokens, offsets = read_tokens(cache)

    def documents() -> Iterator[list[int]]:
        for start, end in pairwise(offsets.tolist()):
            yield [token for token in tokens[start:end].tolist() if token >= 0]

    words = 0
    for some in batched(documents(), _AT_ONCE):
        words += sum(len(text.split()) for text in library.decode_batch(list(some), skip_special_tokens=True))
    return Fraction(words, len(tokens))


def words_seen(recipe: Recipe, step: int, each: Fraction) -> int:
    """Words that were seen before train step ``step``, in all phases."""
    before = recipe.phase.first_sequence if recipe.phase is not None else 0
    sequences = before + (step - recipe.first_step) * recipe.trainer.batch_size
    return int(sequences * recipe.model.seq_len * each)


def states_at(recipe: Recipe, tokenizer: Path, cache: Cache) -> list[int]:
    """The train steps before which a state is recorded because of the words that were seen then."""
    wanted = recipe.trainer.states_at_words
    if wanted is None:
        return []
    each, steps = (
        words_a_token(tokenizer, cache, as_recorded=as_recorded(recipe)),
        range(recipe.first_step, recipe.last_step + 1),
    )
    found = (bisect_left(steps, words, key=lambda step: words_seen(recipe, step, each)) for words in wanted)
    return sorted({steps[place] for place in found if 0 < place < len(steps)})


def check_epochs(recipe: Recipe, tokens: int) -> None:
    """Refuse a training of more epochs than its recipe allows.

    Raises:
        UsageError: with the number of train steps that fit.
    """
    most, steps = recipe.most_steps(tokens), recipe.trainer.num_steps
    if most is None or steps <= most:
        return
    if (phase := recipe.phase) is not None and phase.uncounted:
        raise UsageError(
            "epochs that nothing counts: an earlier phase read another text, or this one in another order",
            where="trainer.most_epochs",
            expected=f"all {phase.first_sequence} sequences before this phase to be of its order",
            found=f"{phase.uncounted} that are not",
            cure="keep data set, tokens, model.seq_len and seed of the phases before, or set trainer.most_epochs to null",
        )
    raise UsageError(
        "more epochs than the recipe allows",
        where="trainer.num_steps",
        expected=f"{most} train steps at most: {recipe.trainer.most_epochs} epochs of {tokens:,} tokens",
        found=f"{steps} train steps of {recipe.trainer.batch_size * recipe.model.seq_len:,} tokens",
        cure=f"trainer.num_steps={most}, which finds corpus, tokenizer and tokens made"
        if most
        else "a smaller trainer.batch_size",
    )


def _counted_words(folder: Cache) -> int | None:
    """The words of the text that a cache is of, where that was counted.

    Raises:
        DataError: it is not a number.
    """
    if isinstance(folder, StoredFolder):
        size = folder.size(WORDS_FILE)
        return None if size is None else read_words(folder.read(WORDS_FILE, 0, size), WORDS_FILE)
    file = folder / WORDS_FILE
    return read_words(file.read_bytes(), folder.name) if file.is_file() else None
