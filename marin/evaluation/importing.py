"""A Hugging Face folder as the beginning of a training, or its tokenizer alone: its files in the store, and the recipe that names
them."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from ledger import Store
from marin.data.borrowed.chats import chat_template
from marin.data.borrowed.folder import borrow, keep
from marin.data.borrowed.tensor_files import INDEX, indexed, tensor_files
from marin.data.template import ChatTemplate
from marin.data.tokenizer import FILE as TOKENIZER
from marin.errors import UsageError
from marin.evaluation.folder import embedding_rows, left_out_of_training
from marin.recipe.schema import Dataset, FilesDataset, Initial, MixtureDataset, Recipe, chats, check

log = logging.getLogger(__name__)
CONFIG = "config.json"


def imported(store: Store, folder: Path, name: str, told: Recipe, recipe: Recipe) -> Recipe:
    """``recipe`` with the model of ``folder`` as its beginning; ``told`` has the model and the ends of texts
    that the folder's configuration says. Its files are in the store afterwards.

    Raises:
        UsageError: a file is not there, or the recipe cannot have such a beginning.
    """
    from marin.training.model import vocabulary_size  # jax, which only the import of a model waits for

    tensors = _tensor_files(folder)
    lacking = [file for file in (CONFIG, *tensors, TOKENIZER) if not (folder / file).is_file()]
    if lacking:
        raise UsageError(
            "a folder without a model",
            where=str(folder),
            expected=f"{CONFIG}, model.safetensors (or its index and parts), {TOKENIZER}",
            found=f"no {', '.join(lacking)}",
            cure="files of other formats hold programs, and are not read",
        )
    if left := left_out_of_training(folder):
        log.warning(
            "%s: left out, nothing is dropped in a training here: %s",
            folder / CONFIG,
            ", ".join(f"{setting}: {value}" for setting, value in left.items()),
        )
    beside = (INDEX,) if indexed(folder) else ()
    with TemporaryDirectory(prefix="marin-import-") as base:
        keep(folder, Path(base))
        model = msgspec.structs.replace(told.model, embedding_rows=embedding_rows(folder))
        vocabulary_size(Path(base), model)
        kept = store.put_tree(Path(base)).digest
    initial = Initial(name=name, model=_put(store, folder, (CONFIG, *beside, *tensors)), tokenizer=kept)
    ends = {name: getattr(told.tokens, name) for name in ("begin_of_text", "end_of_text", "stop_tokens")}
    tokens = msgspec.structs.replace(recipe.tokens, **ends)
    plain = msgspec.structs.replace(recipe.tokenizer, reading="plain")
    begun = msgspec.structs.replace(recipe, initial=initial, model=model, tokens=tokens, tokenizer=plain)
    begun = with_chat_template(begun, folder)
    check(begun, where="initial")
    return begun


def with_tokenizer(store: Store, folder: Path, name: str, recipe: Recipe) -> Recipe:
    """``recipe`` with the tokenizer of ``folder``, which is in the store afterwards. Where its numbers leave some out, the
    embedding has the rows that its last token needs.

    Raises:
        UsageError: there is none, or the recipe has no row for a token.
        DataError: it cannot be read.
    """
    with TemporaryDirectory(prefix="marin-import-") as base:
        found = borrow(folder, Path(base))
        artifact = store.put_tree(Path(base)).digest
    tokenizer = msgspec.structs.replace(
        recipe.tokenizer, vocab_size=found.size, artifact=artifact, taken_from=name, reading="plain"
    )
    model = recipe.model
    if found.rows > found.size:
        model = msgspec.structs.replace(model, embedding_rows=_rows(found.rows, model.embedding_rows, folder))
    ends = {"begin_of_text": None if found.begin == found.end else found.begin, "end_of_text": found.end or None}
    tokens = msgspec.structs.replace(recipe.tokens, **ends)
    taken = with_chat_template(msgspec.structs.replace(recipe, tokenizer=tokenizer, tokens=tokens, model=model), folder)
    check(taken, where="tokenizer")
    return taken


def _rows(needed: int, said: int | None, folder: Path) -> int:
    """Rows of the embedding, for a tokenizer that leaves out numbers."""
    if said is not None and said < needed:
        raise UsageError(
            "a token without a row of the embedding",
            where="model.embedding_rows",
            expected=f"more than {needed - 1}, the tokenizer's last token",
            found=str(said),
            cure="set it to as many or more, or leave it out",
        )
    log.info("%s: its numbers leave some out: the embedding has %d rows", folder, said or needed)
    return said or needed


def with_chat_template(recipe: Recipe, folder: Path) -> Recipe:
    """``recipe`` with the chat template that comes with the tokenizer in ``folder``, for conversations that name none.

    Raises:
        UsageError: it cannot be read.
    """
    if all(part.chat_template is not None for part in chats(recipe.dataset)) or (text := chat_template(folder)) is None:
        return recipe
    ChatTemplate(text, {}, where=str(folder))

    def named[D: Dataset](dataset: D) -> D:
        if isinstance(dataset, MixtureDataset):
            return msgspec.structs.replace(dataset, parts={name: named(part) for name, part in dataset.parts.items()})
        lacks = (
            isinstance(dataset, FilesDataset) and dataset.chat and dataset.chat_reference and not dataset.chat_template
        )
        return msgspec.structs.replace(dataset, chat_template=text) if lacks else dataset

    return msgspec.structs.replace(recipe, dataset=named(recipe.dataset))


def _tensor_files(folder: Path) -> list[str]:
    try:
        return tensor_files(folder)
    except ValueError as error:
        raise UsageError(
            "an index that cannot be read",
            where=str(folder / INDEX),
            expected="names of safetensors",
            found=str(error)[:120],
        ) from None


def _put(store: Store, folder: Path, files: tuple[str, ...] | list[str]) -> str:
    with TemporaryDirectory(prefix="marin-import-") as base:
        for file in files:
            shutil.copyfile(folder / file, Path(base) / file)
        return store.put_tree(Path(base)).digest
