"""Tokenizers from elsewhere beside transformers' AutoTokenizer: ids, texts, begin and end, with every part of the library."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from marin.data.borrowed import reference as reader
from marin.data.borrowed.folder import borrow
from marin.data.tokenizer import load_tokenizer, open_tokenizer

Compare = Callable[..., None]
END, SEP = "<|endoftext|>", "<|sep|>"
TEXTS = (
    "the river bends near the old mill.",
    " The mill's wheel doesn't turn, does it? No !",
    "  two  spaces\n\nand a\ttab\r\n",
    "A\u030ase's café e\u0301 naïve ﬁve ½ 東京 Ａ 😀 Ж",
    f"a mark{SEP}in a text {END} and [MASK] <s> </s>",
    "12,345 and x==y",
    "",
    "river" * 30,
)
CORPUS = [text for text in TEXTS if text] * 3 + ["the river, the mill and the old wheel"] * 5
SIXTEEN = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
PADDED = {
    "strategy": "BatchLongest",
    "direction": "Right",
    "pad_to_multiple_of": 8,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": END,
}
MORE = "a class that does more to a text than its tokenizer: CLIP, whose decoding is a program"
CHANCE = "draws by chance: dropout, sampling, two tokens of one number"
FOREIGN = (
    "a class that is not of the library tokenizers, or that transformers does not read without a program of the folder"
)
TWICE = "a template that does not hold the text exactly once"
PATHS = "settings that name files outside of the folder"
BROKEN = "a compiled map of characters that says another size than it has"
LONGER = "replacements that make a text more than 256 times as long"
NO_END = "a tokenizer that does not say what ends a text"


@dataclass(frozen=True)
class Case:
    """The files of a folder. ``refusal``: why it is refused."""

    tokenizer: dict[str, Any] | None
    config: dict[str, Any] | None = field(default_factory=lambda: {"tokenizer_class": "PreTrainedTokenizerFast"})
    files: dict[str, Any] = field(default_factory=dict)
    refusal: str | None = None


@cache
def trained(kind: str) -> str:
    """The content of tokenizer.json by each model of the library, with the usual parts around it."""
    special = [END, "<s>", "</s>", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<unk>", "<pad>"]
    if kind == "BPE":
        made, alphabet = Tokenizer(models.BPE()), sorted(pre_tokenizers.ByteLevel.alphabet())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        trainer: Any = trainers.BpeTrainer(
            vocab_size=332, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        )
    elif kind == "WordPiece":
        made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(vocab_size=180, special_tokens=special, show_progress=False)
    elif kind == "Unigram":
        made = Tokenizer(models.Unigram())
        made.normalizer, made.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
        made.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=120, special_tokens=special, unk_token="[UNK]", show_progress=False
        )
    else:
        made = Tokenizer(models.WordLevel(unk_token="[UNK]"))
        made.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = trainers.WordLevelTrainer(vocab_size=100, special_tokens=special, show_progress=False)
    made.train_from_iterator(CORPUS, trainer)
    return str(made.to_str())


def of(kind: str = "BPE", change: Callable[[Tokenizer], object] = lambda made: None, **parts: Any) -> dict[str, Any]:
    """A tokenizer with other parts; ``change`` by the library, ``parts`` in the file."""
    made = Tokenizer.from_str(trained(kind))
    for name in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if name in parts and not isinstance(parts[name], dict | None.__class__):
            setattr(made, name, parts.pop(name))
    change(made)
    found: dict[str, Any] = json.loads(made.to_str())
    model = parts.pop("model", {})
    return {**found, **parts, "model": {**found["model"], **model}}


def around(*single: str) -> dict[str, Any]:
    def piece(name: str) -> dict[str, Any]:
        return {"Sequence": {"id": "A", "type_id": 0}} if name == "A" else {"SpecialToken": {"id": name, "type_id": 0}}

    ids = {"<s>": 1, "</s>": 2}
    return {
        "type": "TemplateProcessing",
        "single": [piece(name) for name in single],
        "pair": [piece(name) for name in single] + [{"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in single if name != "A"},
    }


def compiled() -> str:
    """SentencePiece's map of characters with one rule, U+FF21 to A: a Darts trie of three bytes by hand would be long, so that of
    the empty map."""
    return base64.b64encode(struct.pack("<I", 4) + struct.pack("<I", 0)).decode()


def pair(cls: str | None, vocabulary: dict[str, int] | None = None, **config: Any) -> Case:
    """vocab.json and merges.txt by a class."""
    model = json.loads(trained("BPE"))["model"]
    added = config.pop("added", None)
    files: dict[str, Any] = {"vocab.json": vocabulary or model["vocab"], "merges.txt": merges()}
    if added is not None:
        files["added_tokens.json"] = added
    settings = {"eos_token": END, **({"tokenizer_class": cls} if cls else {}), **config}
    return Case(None, settings, files)


def merges() -> str:
    model = json.loads(trained("BPE"))["model"]
    return "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in model["merges"])


def added(content: str, **settings: bool) -> dict[str, Any]:
    usual = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"content": content, **usual, **settings}


def wordpiece_files() -> dict[str, Any]:
    vocabulary = json.loads(trained("WordPiece"))["model"]["vocab"]
    return {"vocab.txt": "".join(f"{token}\n" for token in sorted(vocabulary, key=vocabulary.__getitem__))}


def clip_vocabulary() -> dict[str, Any]:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, *(f"{one}</w>" for one in alphabet), "th", "the</w>", "<|startoftext|>", END]
    return {
        "vocab.json": {token: number for number, token in enumerate(tokens)},
        "merges.txt": "#version: 0.2\nt h\nth e</w>\n",
    }


EOS = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END}
ENDS = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
UNKNOWN = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"\x08\0\0\0\0\0\0\0").decode()}
PARTS: dict[str, Case] = {
    **{f"model {kind}": Case(of(kind), EOS) for kind in ("BPE", "WordPiece", "Unigram", "WordLevel")},
    "model BPE with byte fallback": Case(of(model={"byte_fallback": True}), EOS),
    "model BPE that ignores merges": Case(of(model={"ignore_merges": True}), EOS),
    "model BPE with merges as texts": Case(
        of(model={"merges": [" ".join(one) for one in json.loads(trained("BPE"))["model"]["merges"]]}), EOS
    ),
    "model BPE without chance": Case(of(model={"dropout": 0.0}), EOS),
    "model WordPiece of short words": Case(of("WordPiece", model={"max_input_chars_per_word": 4}), EOS),
    **{
        f"normalizer {name}": Case(of(kind, normalizer=made), EOS)
        for kind, name, made in (
            ("BPE", "NFC", normalizers.NFC()),
            ("BPE", "NFD", normalizers.NFD()),
            ("BPE", "NFKC", normalizers.NFKC()),
            ("BPE", "NFKD", normalizers.NFKD()),
            ("BPE", "Lowercase", normalizers.Lowercase()),
            ("BPE", "Strip", normalizers.Strip()),
            ("BPE", "StripAccents", normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])),
            ("BPE", "Replace", normalizers.Replace(Regex(r"\s+"), " ")),
            ("BPE", "Prepend", normalizers.Prepend("the ")),
            ("BPE", "Nmt", normalizers.Nmt()),
            ("BPE", "Sequence", normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])),
            ("WordPiece", "Bert, cased", normalizers.BertNormalizer(lowercase=False, strip_accents=False)),
        )
    },
    "normalizer ByteLevel": Case(of(normalizer=normalizers.ByteLevel(), pre_tokenizer=None), EOS),
    **{
        f"pre-tokenizer {name}": Case(of(kind, pre_tokenizer=made), EOS)
        for kind, name, made in (
            ("BPE", "ByteLevel with a space in front", pre_tokenizers.ByteLevel(add_prefix_space=True)),
            ("BPE", "ByteLevel without its pattern", pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)),
            ("WordPiece", "Whitespace", pre_tokenizers.Whitespace()),
            ("WordPiece", "WhitespaceSplit", pre_tokenizers.WhitespaceSplit()),
            ("WordPiece", "CharDelimiterSplit", pre_tokenizers.CharDelimiterSplit("e")),
            ("WordPiece", "Punctuation", pre_tokenizers.Punctuation("merged_with_previous")),
            ("WordPiece", "FixedLength", pre_tokenizers.FixedLength(3)),
            ("Unigram", "Metaspace never", pre_tokenizers.Metaspace(prepend_scheme="never")),
            ("Unigram", "Metaspace first", pre_tokenizers.Metaspace(prepend_scheme="first")),
            ("Unigram", "UnicodeScripts", pre_tokenizers.UnicodeScripts()),
            (
                "BPE",
                "Split and ByteLevel",
                pre_tokenizers.Sequence(
                    [
                        pre_tokenizers.Split(Regex(r"\p{N}{1,3}|\s+"), "isolated"),
                        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
                    ]
                ),
            ),
            (
                "BPE",
                "Digits",
                pre_tokenizers.Sequence(
                    [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
                ),
            ),
        )
    },
    "post-processor Template": Case(of(post_processor=around("<s>", "A", "</s>")), ENDS),
    "post-processor Template at the end": Case(of(post_processor=around("A", "</s>")), ENDS),
    "post-processor Roberta": Case(of(post_processor=processors.RobertaProcessing(("</s>", 2), ("<s>", 1))), ENDS),
    "post-processor Bert": Case(
        of("WordPiece", post_processor=processors.BertProcessing(("[SEP]", 5), ("[CLS]", 4))),
        {**EOS, "cls_token": "[CLS]", "sep_token": "[SEP]"},
    ),
    "post-processor ByteLevel": Case(of(post_processor=processors.ByteLevel(trim_offsets=False)), EOS),
    "post-processor Sequence": Case(
        of(
            post_processor=processors.Sequence(
                [
                    processors.ByteLevel(),
                    processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]),
                ]
            )
        ),
        ENDS,
    ),
    **{
        f"decoder {name}": Case(of(kind, decoder=made), EOS)
        for kind, name, made in (
            ("WordPiece", "WordPiece without clean-up", decoders.WordPiece(cleanup=False)),
            (
                "Unigram",
                "Replace and Strip",
                decoders.Sequence([decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)]),
            ),
            ("BPE", "Fuse", decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])),
            ("WordLevel", "BPE", decoders.BPEDecoder(suffix="e")),
            ("WordLevel", "CTC", decoders.CTC(pad_token="[MASK]")),
        )
    },
    "decoder null": Case(of("WordPiece", decoder=None), EOS),
    "added tokens that strip and are normalized": Case(
        of(
            change=lambda made: made.add_tokens(
                [AddedToken(SEP, lstrip=True, rstrip=True), AddedToken("mill", single_word=True, normalized=True)]
            )
        ),
        EOS,
    ),
    "truncation": Case(of(truncation=SIXTEEN), EOS),
    "padding": Case(of(padding=PADDED), EOS),
    "truncation and padding with a class": Case(
        of(truncation=SIXTEEN, padding=PADDED), {"tokenizer_class": "Qwen2Tokenizer", "eos_token": END}
    ),
    "chance": Case(of(model={"dropout": 0.1}), EOS, refusal=CHANCE),
    "chance by a sample": Case(of("Unigram", model={"alpha": 0.1}), EOS, refusal=CHANCE),
    "two tokens of one number": Case(
        of("WordLevel", model={"vocab": {"[UNK]": 0, END: 1, "a": 2, "b": 2}}, added_tokens=[]), EOS, refusal=CHANCE
    ),
    "a template with the text twice": Case(of(post_processor=around("A", "A")), EOS, refusal=TWICE),
    "a template without the text": Case(of(post_processor=around("<s>")), EOS, refusal=TWICE),
    "a map that says more": Case(
        of(
            normalizer={"type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"\x10\0\0\0\0\0\0\0").decode()}
        ),
        EOS,
        refusal=BROKEN,
    ),
    "replacements": Case(
        of(normalizer=normalizers.Sequence([normalizers.Replace("z", "z" * 20), normalizers.Replace("z", "y" * 20)])),
        EOS,
        refusal=LONGER,
    ),
    "no end": Case(of("WordLevel", model={"vocab": {"[UNK]": 0, "a": 2}}, added_tokens=[]), {}, refusal=NO_END),
}
NAMES: dict[str, Case] = {
    "no config": Case(of(), None),
    "a config without a class": Case(of(), {"eos_token": "</s>"}),
    "a class that nobody knows": Case(of(), {"tokenizer_class": "OurTokenizer", "eos_token": "</s>"}),
    "end in the map alone": Case(of(), files={"special_tokens_map.json": {"bos_token": "<s>", "eos_token": "</s>"}}),
    "the map before the config": Case(of(), ENDS, {"special_tokens_map.json": {"eos_token": added("[SEP]")}}),
    "added_tokens_decoder before the map": Case(
        of(),
        {**ENDS, "added_tokens_decoder": {"5": added("[SEP]")}},
        {"special_tokens_map.json": {"eos_token": "[SEP]"}},
    ),
    "an end as an object": Case(of(), {**EOS, "eos_token": {"__type": "AddedToken", **added("</s>", lstrip=True)}}),
    "an end that is not in the vocabulary": Case(of(), {**EOS, "eos_token": "<eot>"}),
    "pad and end differ": Case(of(), {**ENDS, "pad_token": "[MASK]", "unk_token": "[UNK]"}),
    "additional special tokens": Case(of(), {**EOS, "additional_special_tokens": [SEP, "<|other|>"]}),
    "extra special tokens by name": Case(of(), {**EOS, "extra_special_tokens": {"sep_token_of_ours": SEP}}),
    "added_tokens.json": Case(of(), EOS, {"added_tokens.json": {SEP: 332}}),
    "add_bos_token beside a file": Case(of(), {**ENDS, "add_bos_token": True, "add_eos_token": True}),
    "clean-up": Case(of("WordPiece"), {**EOS, "clean_up_tokenization_spaces": True}),
    "clean-up of BPE": Case(of(), {**EOS, "clean_up_tokenization_spaces": True}),
    "special tokens are split": Case(of(), {**EOS, "split_special_tokens": True}),
    "add_prefix_space beside a file": Case(of(), {**EOS, "add_prefix_space": True}),
    "a model of another class": Case(of(), {"eos_token": END}, {"config.json": {"model_type": "gpt2"}}),
    "a model whose hub class is not believed": Case(
        of(), {"tokenizer_class": "LlamaTokenizerFast", "eos_token": END}, {"config.json": {"model_type": "qwen2"}}
    ),
    "a program": Case(
        of(),
        {"tokenizer_class": "Ours", "auto_map": {"AutoTokenizer": ["ours.Ours", None]}, "eos_token": END},
        refusal=FOREIGN,
    ),
    "a file elsewhere": Case(None, {**EOS, "vocab_file": __file__}, {"merges.txt": merges()}, refusal=PATHS),
}
CLASSES: dict[str, Case] = {
    **{
        f"tokenizer.json by {cls}": Case(of(), {"tokenizer_class": cls, "eos_token": END, **more})
        for cls, more in (
            ("GPT2Tokenizer", {}),
            ("GPT2TokenizerFast", {"add_prefix_space": True}),
            ("Qwen2Tokenizer", {}),
            ("RobertaTokenizer", {"bos_token": "<s>", "eos_token": "</s>"}),
            ("LlamaTokenizerFast", {"bos_token": "<s>", "eos_token": "</s>", "legacy": False}),
            ("GPTNeoXTokenizer", {}),
            ("CodeLlamaTokenizer", {"bos_token": "<s>", "eos_token": "</s>"}),
            ("GemmaTokenizer", {"bos_token": "<s>", "eos_token": "</s>"}),
            ("CohereTokenizer", {"bos_token": "<s>"}),
        )
    },
    "tokenizer.json by BertTokenizer": Case(
        of("WordPiece"), {"tokenizer_class": "BertTokenizer", "do_lower_case": False, "eos_token": "[SEP]"}
    ),
    "tokenizer.json by T5Tokenizer": Case(
        of("Unigram"), {"tokenizer_class": "T5Tokenizer", "extra_ids": 0, "unk_token": "[UNK]", "eos_token": "</s>"}
    ),
    "pair without a class": pair(None),
    "pair by GPT2Tokenizer": pair("GPT2Tokenizer"),
    "pair by GPT2Tokenizer with a space": pair("GPT2TokenizerFast", add_prefix_space=True),
    "pair by GPT2Tokenizer with added tokens": pair(
        "GPT2Tokenizer", added_tokens_decoder={"332": added(SEP), "333": added("mill", special=False, normalized=True)}
    ),
    "pair by GPT2Tokenizer with added_tokens.json": pair("GPT2Tokenizer", added={SEP: 332}),
    "pair by GPT2Tokenizer with a begin": pair("GPT2Tokenizer", bos_token="<s>", add_bos_token=True),
    "pair by Qwen2Tokenizer": pair("Qwen2Tokenizer", additional_special_tokens=[SEP]),
    "pair by RobertaTokenizer": pair("RobertaTokenizer", eos_token="</s>", bos_token="<s>"),
    "pair by BartTokenizer": pair("BartTokenizer", eos_token="</s>", bos_token="<s>"),
    "pair by LEDTokenizer": pair("LEDTokenizer", eos_token="</s>", bos_token="<s>"),
    "pair by GPTNeoXTokenizer": pair("GPTNeoXTokenizer"),
    "pair by WhisperTokenizer": pair("WhisperTokenizer"),
    "pair by DebertaTokenizer": pair("DebertaTokenizer", eos_token="[SEP]"),
    "pair by CLIPTokenizer": Case(
        None,
        {"tokenizer_class": "CLIPTokenizer", "bos_token": "<|startoftext|>", "eos_token": END},
        clip_vocabulary(),
        MORE,
    ),
    "vocab.txt by BertTokenizer": Case(
        None, {"tokenizer_class": "BertTokenizer", "eos_token": "[SEP]", "bos_token": "[CLS]"}, wordpiece_files()
    ),
    "vocab.txt by BertTokenizer, cased": Case(
        None, {"tokenizer_class": "BertTokenizer", "do_lower_case": False, "eos_token": "[SEP]"}, wordpiece_files()
    ),
    "vocab.txt by BertTokenizer without accents": Case(
        None,
        {
            "tokenizer_class": "BertTokenizerFast",
            "strip_accents": False,
            "tokenize_chinese_chars": False,
            "eos_token": "[SEP]",
        },
        wordpiece_files(),
    ),
    "a class of Python": pair("CTRLTokenizer"),
}
CASES = {**PARTS, **NAMES, **CLASSES}
OF_PYTHON = {"a class of Python"}


def written(case: Case, folder: Path) -> Path:
    folder.mkdir()
    files = {**case.files, "tokenizer.json": case.tokenizer, "tokenizer_config.json": case.config}
    for name, content in files.items():
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
            (folder / name).write_text(text, "utf-8")
    return folder


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers is asked here: to import it anew takes seconds."""
    monkeypatch.setattr(reader, "read", lambda folder, where: reader.read_of(reader.answer_of(folder), where))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("in_this_process")
def test_tokenizer(name: str, compare: Compare, tmp_path: Path) -> None:
    case, target = CASES[name], tmp_path / "kept"
    target.mkdir()
    folder = written(case, tmp_path / "folder")
    refusal = FOREIGN if name in OF_PYTHON else case.refusal

    compare("tokenizers", name, lambda: ours(folder, target), None if refusal else reference(folder), refusal=refusal)
    if refusal is None:  # and so do those who load what is exported
        compare("tokenizers, exported", name, lambda: reference(target), reference(folder))


def ours(folder: Path, target: Path, texts: Sequence[str] = TEXTS) -> dict[str, object]:
    """What is kept in ``target`` makes of them."""
    found = borrow(folder, target)
    made, trains = open_tokenizer(target), load_tokenizer(target)
    ids = [made.encode(text).ids for text in texts]
    assert [list(one.ids) for one in trains.encode_batch_fast(texts)] == ids, "in training as elsewhere"
    assert load_tokenizer(target).encode_batch(texts[:2])[1].ids == ids[1], "whatever is beside it"
    return {
        "ids": ids,
        "around": [made.encode(text, add_special_tokens=True).ids for text in texts],
        "texts": [made.decode(one) for one in ids],
        "size": found.size,
        "special": {name: made.special.id(name) for name in made.special.named},
        "extra": sorted(made.special.extra),
        "begin and end": [found.begin, found.end],
    }


def reference(folder: Path, texts: Sequence[str] = TEXTS) -> dict[str, object]:
    """What transformers says, with settings of a call switched off, as its own calls do."""
    from transformers import AutoTokenizer

    if not (folder / "tokenizer.json").is_file() and "tokenizer_class" not in json.loads(
        (folder / "tokenizer_config.json").read_bytes()
    ):
        from transformers import GPT2Tokenizer

        found = GPT2Tokenizer.from_pretrained(folder)
    else:
        found = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    ids = [found.encode(text, add_special_tokens=False, truncation=False, padding=False) for text in texts]
    end = found.convert_tokens_to_ids(END) if found.eos_token is None else found.eos_token_id
    special = {name: found.convert_tokens_to_ids(text) for name, text in found.special_tokens_map.items()}
    return {
        "ids": ids,
        "around": [found.encode(text, truncation=False, padding=False) for text in texts],
        "texts": [found.decode(one) for one in ids],
        "size": len(found),
        "special": special if found.eos_token is not None else {**special, "eos_token": end},
        "extra": sorted(str(one) for one in found.extra_special_tokens),
        "begin and end": [end if found.bos_token is None else found.bos_token_id, end],
    }


def test_the_table_is_broad() -> None:
    said = json.dumps([case.tokenizer for case in CASES.values()])
    library = (models, normalizers, pre_tokenizers, processors, decoders)
    kinds = {name for name in chain.from_iterable(map(dir, library)) if name[0].isupper()}
    general = {"Model", "Normalizer", "PreTokenizer", "PostProcessor", "Decoder", "DecodeStream", "NORMALIZERS"}
    assert len(CASES) >= 60 and {name for name in kinds - general if f'"{name}"' not in said} == set()
