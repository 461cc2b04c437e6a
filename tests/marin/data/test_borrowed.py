"""A tokenizer that was made elsewhere, against the library that owns the format and against GPT-2's two files written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import ByteLevelBPETokenizer, Tokenizer, models

from ledger import PosixStorage, Store
from marin.data.borrowed.folder import PAIRS, borrow
from marin.errors import DataError, UsageError
from marin.evaluation.importing import with_tokenizer
from marin.recipe.schema import Model, Recipe, plain

END = "<|endoftext|>"


@pytest.fixture(scope="module")
def peer() -> ByteLevelBPETokenizer:
    """The library's own class for tokenizers of GPT-2's kind, trained with the end of text as its last token, as GPT-2 has it."""
    made = ByteLevelBPETokenizer(add_prefix_space=False)
    made.train_from_iterator(
        ["the farmer sees a dog near old barns"] * 3, vocab_size=270, min_frequency=2, show_progress=False
    )
    return made


def written(peer: ByteLevelBPETokenizer, folder: Path, pair: tuple[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    peer.save_model(str(folder))
    vocabulary = json.loads((folder / "vocab.json").read_text("utf-8"))
    vocabulary[END] = len(vocabulary)
    merges = (folder / "merges.txt").read_text("utf-8")
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink()
    (folder / pair[0]).write_text(json.dumps(vocabulary), "utf-8")
    (folder / pair[1]).write_text(merges, "utf-8")
    return folder


@pytest.mark.hypothesis
@pytest.mark.parametrize("pair", PAIRS)
def test_gpt2s_two_files_are_one_tokenizer(peer: ByteLevelBPETokenizer, pair: tuple[str, str], tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    found = borrow(written(peer, tmp_path / "folder", pair), target)
    made = Tokenizer.from_file(str(target / "tokenizer.json"))
    size = peer.get_vocab_size()
    assert (found.size, found.begin, found.end) == (size + 1, size, size)

    @given(st.text(max_size=40).filter(lambda text: END not in text))
    def same(text: str) -> None:
        assert made.encode(text).ids == peer.encode(text).ids
        assert made.decode(made.encode(text).ids) == text

    same()
    assert made.encode(f"a{END}").ids == [*peer.encode("a").ids, size]


def test_a_tokenizer_is_in_the_store_and_in_the_recipe(peer: ByteLevelBPETokenizer, tmp_path: Path) -> None:
    store = Store(PosixStorage(tmp_path / "store"))
    folder = written(peer, tmp_path / "folder", PAIRS[0])
    taken = with_tokenizer(store, folder, "folder here", Recipe())
    assert taken.tokenizer.artifact is not None and taken.tokenizer.taken_from == "folder here"
    assert taken.tokens.end == peer.get_vocab_size() == taken.tokenizer.vocab_size - 1
    store.checkout(taken.tokenizer.artifact, tmp_path / "out")
    (tmp_path / "out").rename(tmp_path / "again")
    again = with_tokenizer(store, tmp_path / "again", "folder here", Recipe())
    assert again == taken, "what is kept is read back as it is"
    assert "artifact" not in plain(Recipe().tokenizer) and "taken_from" not in plain(Recipe().tokenizer)


def test_numbers_that_are_left_out_have_rows(tmp_path: Path) -> None:
    """The last token's number is what an embedding needs, as in torch: not how many tokens there are."""
    made = Tokenizer(models.WordLevel({END: 0, "[UNK]": 1, "river": 2, "mill": 7}, unk_token="[UNK]"))
    made.add_special_tokens([END])
    folder, store = tmp_path / "folder", Store(PosixStorage(tmp_path / "store"))
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    taken = with_tokenizer(store, folder, "here", Recipe())
    assert (taken.tokenizer.vocab_size, taken.model.embedding_rows, taken.vocabulary) == (4, 8, 8)
    wide = with_tokenizer(store, folder, "here", Recipe(model=Model(embedding_rows=64)))
    assert wide.vocabulary == 64
    with pytest.raises(UsageError, match=r"(?s)a token without a row.*more than 7"):
        with_tokenizer(store, folder, "here", Recipe(model=Model(embedding_rows=7)))


@pytest.mark.long
def test_what_is_no_tokenizer_is_refused(peer: ByteLevelBPETokenizer, tmp_path: Path) -> None:
    def refused(kind: type[Exception], match: str) -> None:
        target = tmp_path / "target"
        target.mkdir()
        with pytest.raises(kind, match=match):
            borrow(tmp_path / "folder", target)
        for file in target.iterdir():
            file.unlink()
        target.rmdir()

    (tmp_path / "folder").mkdir()
    refused(UsageError, "without a tokenizer")
    (tmp_path / "folder" / "tokenizer.json").write_text("{}")
    refused(DataError, "cannot be read")
    peer.save(str(tmp_path / "folder" / "tokenizer.json"))
    refused(UsageError, "does not say what ends a text")
    (tmp_path / "folder" / "tokenizer_config.json").write_text("[]")
    refused(UsageError, "settings cannot be read")
    (tmp_path / "folder" / "tokenizer_config.json").write_text("{}")
    (tmp_path / "folder" / "tokenizer.json").unlink()
    (tmp_path / "folder" / "vocab.json").write_text("{}")
    (tmp_path / "folder" / "merges.txt").write_text("a\nb c d\n")
    refused(UsageError, "of one vocabulary")
