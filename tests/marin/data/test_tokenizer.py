"""The door to tokenizers, beside the library's own calls: what a file switches on, what it may hold, and what ends a process."""

from __future__ import annotations

import base64
import json
import logging
import struct
from pathlib import Path
from typing import Any, cast

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from marin.data.borrowed import reference, trial
from marin.data.borrowed.folder import WANTED, keep, kept_folder
from marin.data.documents import Document
from marin.data.tokenizer import (
    MOST_BYTES,
    SpecialTokens,
    Tokenizer,
    load_tokenizer,
    open_tokenizer,
    parse_tokenizer,
    switched_on,
)
from marin.errors import DataError, UsageError
from marin.training.tokens.encoding import encode_documents, encoded_split
from marin.work.placed import start as worker

END = "<|endoftext|>"
TEXTS = [f"the river bends near mill {number}, and the old wheel turns" for number in range(40)]
LARGER = base64.b64encode(struct.pack("<III", 16, 0, 0)).decode()
DOUBLES = {"type": "Replace", "pattern": {"String": "q"}, "content": "qq"}


@pytest.fixture(scope="module")
def library() -> Library:
    made = Library(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=300, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    )
    return made


def changed(library: Library, **parts: Any) -> bytes:
    found = json.loads(library.to_str())
    model = parts.pop("model", {})
    return json.dumps({**found, **parts, "model": {**found["model"], **model}}).encode()


def settings_of_a_call(library: Library) -> bytes:
    made = Library.from_str(library.to_str())
    made.enable_truncation(4)
    made.enable_padding(length=64, pad_token=END)
    made.post_processor = processors.TemplateProcessing(single=f"{END} $A {END}", special_tokens=[(END, 0)])
    return str(made.to_str()).encode()


def folder_of(path: Path, data: bytes, **config: Any) -> Path:
    path.mkdir(exist_ok=True)
    (path / "tokenizer.json").write_bytes(data)
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, **config}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path


def test_settings_of_a_call_are_switched_off_and_said(library: Library, caplog: pytest.LogCaptureFixture) -> None:
    data, wanted = settings_of_a_call(library), [library.encode(text).ids for text in TEXTS]
    with caplog.at_level(logging.WARNING):
        found = parse_tokenizer(data, where="here")
    assert [record.getMessage() for record in caplog.records] == [
        "here: truncation and padding: settings of a call, switched off"
    ]
    assert [found.encode(text).ids for text in TEXTS] == wanted
    assert (
        [one.ids for one in found.encode_batch(TEXTS)] == [one.ids for one in found.encode_batch_fast(TEXTS)] == wanted
    )
    assert found.encode(TEXTS[0], add_special_tokens=True).ids == [0, *wanted[0], 0]
    before = parse_tokenizer(data, where="here", as_recorded=True)
    assert len(before.encode(TEXTS[0]).ids) == 64, "what runs recorded before is read as it was"


def test_workers_encode_as_one_process_does(library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(tmp_path / "folder", settings_of_a_call(library))
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps({"text": text, "source": "s", "metadata": {}}) + "\n" for text in TEXTS))
    monkeypatch.setattr("marin.training.tokens.encoding.SHARD_BYTES", 700)

    class Workers:
        def __init__(self, start: Any, setup: bytes, tasks: Any) -> None:
            self.work, self.tasks = start(setup), tasks
            assert start is worker and len(tasks) > 2

        def __enter__(self) -> Any:
            return (self.work(self.tasks[number]) for number in range(len(self.tasks)))

        def __exit__(self, *ended: object) -> None: ...

    def ids(execute: Any) -> list[list[int]]:
        return [one.tolist() for one, _ in encoded_split(folder, path, [7], masked=False, execute=execute)]

    assert ids(None) == ids(Workers) == [[*library.encode(text).ids, 7] for text in TEXTS]


def test_a_special_token_in_a_text(library: Library, tmp_path: Path) -> None:
    data, text = str(library.to_str()).encode(), f"a{END}b"
    folder = folder_of(tmp_path / "folder", data)
    assert load_tokenizer(folder).encode(text).ids == library.encode(text).ids, "as transformers has it"
    apart = load_tokenizer(folder, as_recorded=True)
    assert 0 not in apart.encode(text).ids and apart.decode(apart.encode(text).ids) == text
    assert open_tokenizer(folder, as_recorded=True).encode(text).ids == library.encode(text).ids
    documents = [Document(text, "s", {})]
    assert 0 not in next(encode_documents(apart, documents, [], masked=False))[0].tolist()


def test_special_tokens_have_names(library: Library, tmp_path: Path) -> None:
    made = Library.from_str(library.to_str())
    made.add_special_tokens(["<s>", "<|mark|>"])
    folder = folder_of(
        tmp_path / "folder", str(made.to_str()).encode(), bos_token={"content": "<s>"}, image_token="<|mark|>"
    )
    found = open_tokenizer(folder).special
    assert (found.text("bos_token"), found.id("bos_token"), found.id("eos_token")) == ("<s>", 300, 0)
    assert (found.text("pad_token"), found.id("pad_token"), found.named["image_token"]) == (None, None, "<|mark|>")
    assert found.ids == {END: 0, "<s>": 300, "<|mark|>": 301}


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ({"model": {"dropout": 0.5}}, "model.dropout"),
        ({"model": {"dropout": True}}, "model.dropout"),
        ({"model": {"nbest_size": 4}}, "model.nbest_size"),
        ({"model": {"vocab": {"a": 0, "b": 0}}}, "model.vocab.*two tokens with the number 0"),
        ({"model": {"vocab": {"a": 2**40}}}, "model.vocab.*1099511627776"),
        ({"model": {"vocab": {"a": 0.5}}}, r"model.vocab.*0\.5"),
        ({"model": {"vocab": {"a": -1}}}, "model.vocab.*-1"),
        ({"added_tokens": [{"id": 0, "content": ""}]}, "added_tokens"),
        ({"added_tokens": [{"id": 2**33, "content": "x"}]}, "added_tokens"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "no base64"}}, "Precompiled"),
        (
            {
                "normalizer": {
                    "type": "Precompiled",
                    "precompiled_charsmap": base64.b64encode(struct.pack("<III", 16, 0, 0)).decode(),
                }
            },
            "12 bytes that say 16",
        ),
        (
            {
                "normalizer": {
                    "type": "Sequence",
                    "normalizers": [{"type": "Replace", "pattern": {"String": "q"}, "content": "qq"}] * 9,
                }
            },
            "normalizer: replacements",
        ),
        ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}] * 300}}, "parts"),
        ({"post_processor": {"type": "TemplateProcessing", "single": []}}, "the text once"),
        ({"model": None}, "a model"),
    ],
)
def test_what_a_file_may_not_hold(library: Library, parts: dict[str, Any], match: str) -> None:
    data = changed(library, **parts) if parts.get("model", {}) is not None else b'{"model": null}'
    with pytest.raises(DataError, match=match):
        parse_tokenizer(data, where="here")


def test_what_is_no_json_object(library: Library) -> None:
    for data in (b"", b"\xff", b"[]", b"{" * 5000, b'{"a": ' + b"[" * 80 + b"]" * 80 + b', "model": {}}'):
        with pytest.raises(DataError, match="cannot be read"):
            switched_on(data, where="here")
    assert len(library.to_str()) < MOST_BYTES


def test_what_the_library_throws_is_an_answer(library: Library) -> None:
    lacking = {"unk_token": "<unk>", "vocab": {END: 0, "a": 1}, "merges": []}
    found = parse_tokenizer(changed(library, model=lacking), where="here")
    with pytest.raises(DataError, match=r"cannot encode.*<unk>"):
        found.encode("river")

    class PanicException(BaseException): ...  # as pyo3 has it

    class Panics:
        def decode(self, ids: list[int], **settings: bool) -> str:
            raise PanicException("index out of bounds")

    with pytest.raises(DataError, match=r"cannot decode.*PanicException: index out of bounds"):
        Tokenizer(cast("Library", Panics()), SpecialTokens(), where="here").decode([1])


@pytest.mark.long
def test_a_folder_is_read_in_a_process_of_its_own(library: Library, tmp_path: Path) -> None:
    source = folder_of(tmp_path / "folder", changed(library), tokenizer_class="Qwen2Tokenizer")
    (source / "chat_template.jinja").write_text("{{ messages }}")
    target = tmp_path / "kept"
    target.mkdir()
    assert keep(source, target).encode("e\u0301").ids == library.encode("é").ids, "Qwen2 composes characters"
    assert (target / "chat_template.jinja").read_text() == "{{ messages }}"
    with kept_folder(target) as again:
        assert again == target, "what is kept needs no reading by another"
    assert "config.json" in WANTED


def test_a_folder_that_ends_the_process_is_an_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(UsageError, match="its process ended with status 1"):
        reference.read(tmp_path, where="here")
    with pytest.raises(DataError, match="status 1"):
        trial.check(b'{"model": {"type": "WordLevel", "vocab": {"a": 0}}}', where="here")


def test_tokenizers_that_are_trained_here_need_no_trial(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_ended", lambda data: "asked")
    trial.check(str(library.to_str()).encode(), where="here")
    with pytest.raises(DataError, match="asked"):
        trial.check(changed(library, normalizer={"type": "NFC"}), where="here")


def test_a_trial_ends_by_itself(library: Library) -> None:
    trial.check(changed(library, normalizer={"type": "NFKC"}), where="here")
