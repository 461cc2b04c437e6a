"""Evaluations beside lm-evaluation-harness itself: the same tasks through its own ``simple_evaluate``, by a model that makes
requests as its ``HFLM`` does (which needs torch), with tokens of transformers' tokenizer and our log-likelihoods.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval", reason="the extra `evaluation` (make evaluation)")

import numpy as np
import yaml
from jinja2 import TemplateError
from lm_eval import evaluator, utils
from lm_eval.api.model import TemplateLM
from lm_eval.tasks import TaskManager
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing

from marin.data.borrowed.chats import template_in
from marin.errors import UsageError
from marin.evaluation.folder import folder_recipe
from marin.evaluation.folder_subject import open_folder
from marin.evaluation.scoring import Prompt, Row, Scorer
from marin.evaluation.subject import Subject
from marin.plugins.evaluation.harness.documents import documents
from marin.plugins.evaluation.harness.model import generation
from marin.plugins.evaluation.harness.recording import evaluated
from marin.plugins.evaluation.harness.tasks import read_named
from marin.plugins.evaluation.recorded.evaluated import numbers
from marin.plugins.evaluation.recorded.records import Settings, current_settings
from marin.plugins.evaluation.recorded.task import EvaluationTask
from tests.fidelity.test_folders import LLAMA, shapes

pytestmark = pytest.mark.evaluation

KIND = "evaluations"
SPECIAL = ("<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>", "<|eot|>")
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] | trim }}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
WITHOUT_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + TEMPLATE
SYSTEM = "You are terse.\nAnswer."
WORDS = ("one", "two words", "a", "x" * 20, "the last one", "of some")
DATA = [{"question": f"say {word}", "answer": word, "other": word[::-1] + "!"} for word in WORDS]
TASK: dict[str, Any] = {"dataset_path": "json", "test_split": "test", "fewshot_split": "test"}
CHOICE = {
    **TASK,
    "output_type": "multiple_choice",
    "doc_to_text": "Q: {{question}}\nA:",
    "doc_to_target": 0,
    "doc_to_choice": "{{[answer, other]}}",
    "metric_list": [{"metric": name, "aggregation": "mean"} for name in ("acc", "acc_norm")],
}
TASKS: dict[str, dict[str, Any]] = {
    "choice": CHOICE,
    "described": {**CHOICE, "description": "Answer them.\n\n", "num_fewshot": 2},
    "spaced": {
        **CHOICE,
        "doc_to_text": "{{question}}  ",
        "target_delimiter": "",
        "fewshot_config": {"sampler": "first_n"},
    },
    "bare": {**CHOICE, "doc_to_text": "", "target_delimiter": ""},
    "marked": {**CHOICE, "doc_to_text": "<s>{{question}}"},
    "prefixed": {**CHOICE, "gen_prefix": "The answer is"},
    "text": {
        **TASK,
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{question}} {{answer}} {{other}}",
        "metric_list": [
            {"metric": "word_perplexity", "aggregation": "weighted_perplexity"},
            {"metric": "bits_per_byte", "aggregation": "bits_per_byte"},
        ],
    },
    "likely": {
        **TASK,
        "output_type": "loglikelihood",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "metric_list": [
            {"metric": "perplexity", "aggregation": "perplexity"},
            {"metric": "acc", "aggregation": "mean"},
        ],
    },
    "said": {
        **TASK,
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": ["e"], "max_gen_toks": 6, "do_sample": False},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean"}],
    },
    "long": {
        **TASK,
        "output_type": "generate_until",
        "doc_to_text": "{{question}}{{question}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"max_tokens": 26, "temperature": 0.0},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean"}],
    },
}
TOKENIZERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "post-processor": {"processor": ["<s>"]},
    "both ends": {"processor": ["<s>", "</s>"]},
    "add_bos_token": {"config": {"add_bos_token": True}},
    "add_bos_token false": {"processor": ["<s>"], "config": {"add_bos_token": False}},
    "no begin": {"config": {"bos_token": None}},
}
CHAT_TEMPLATES: dict[str, dict[str, Any]] = {"no system": {"config": {"chat_template": WITHOUT_SYSTEM}}}


def folder_with(base: Path, name: str) -> Path:
    """A small Llama, whose tokenizer is over bytes and has special tokens, and marks as ``name`` says."""
    alphabet = {sign: n for n, sign in enumerate(sorted(ByteLevel.alphabet()), start=len(SPECIAL))}
    tokenizer = Tokenizer(BPE({sign: n for n, sign in enumerate(SPECIAL)} | alphabet, []))
    tokenizer.add_special_tokens([AddedToken(sign, special=True) for sign in SPECIAL])
    tokenizer.pre_tokenizer, tokenizer.decoder = ByteLevel(add_prefix_space=False), ByteDecoder()
    said = {**TOKENIZERS, **CHAT_TEMPLATES}[name]
    if marks := said.get("processor"):
        single = " ".join([marks[0], "$A", *marks[1:]])
        tokenizer.post_processor = TemplateProcessing(
            single=single, special_tokens=[(one, SPECIAL.index(one)) for one in marks]
        )
    folder = base / name
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config | said.get("config", {})), "utf-8")
    rows = tokenizer.get_vocab_size()
    model = {**LLAMA, "vocab_size": rows, "bos_token_id": 0, "eos_token_id": [1, 5], "max_position_embeddings": 64}
    (folder / "config.json").write_text(json.dumps(model), "utf-8")
    draw = np.random.default_rng(5)
    table = {key: ((rows, shape[1]) if shape[0] == 61 else shape) for key, shape in shapes(model).items()}
    tensors = {
        key: (draw.normal(1 if len(shape) == 1 else 0, 0.4, shape)).astype(np.float32) for key, shape in table.items()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Subject]]:
    base, found = tmp_path_factory.mktemp("models"), {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("marin.training.runtime.canary.check", lambda arithmetic: None)
        for name in (*TOKENIZERS, *CHAT_TEMPLATES):
            folder = folder_with(base, name)
            template = template_in(folder)
            assert template is not None
            subject = open_folder(folder, folder_recipe(folder))
            found[name] = folder, replace(subject, template=template)
    return found


@pytest.fixture(scope="module")
def scorer(subjects: dict[str, tuple[Path, Subject]]) -> Scorer:
    subject = subjects["plain"][1]
    return Scorer(subject.model, subject.recipe)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tasks")
    (place / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in DATA), encoding="utf-8")
    for name, config in TASKS.items():
        files = {"data_files": {"test": str(place / "data.jsonl")}}
        said = {"task": name, **config, "dataset_kwargs": files}
        (place / f"{name}.yaml").write_text(yaml.safe_dump(said), encoding="utf-8")
    return place


class ByTransformers(TemplateLM):
    """HFLM of lm-eval 0.4.13 without torch: ``tok_encode``, ``loglikelihood_rolling`` and ``generate_until`` line by line, what
    TemplateLM does not have already."""

    def __init__(self, folder: Path, scorer: Scorer) -> None:
        from transformers import AutoTokenizer

        super().__init__()
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.scorer, self.max_length = scorer, scorer.seq_len
        self.asked: list[tuple[str, Any]] = []

    @property
    def eot_token_id(self) -> int:
        return int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int:
        return int(self.tokenizer.eos_token_id if self.tokenizer.bos_token_id is None else self.tokenizer.bos_token_id)

    @property
    def tokenizer_name(self) -> str:
        return "here"

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        kind = {} if add_special_tokens is None else {"add_special_tokens": add_special_tokens}
        if add_special_tokens is None and string.startswith(self.tokenizer.decode(self.prefix_token_id)):
            kind = {"add_special_tokens": False}
        return list(self.tokenizer.encode(string, **kind))

    def _loglikelihood_tokens(self, requests: Any, **kwargs: Any) -> list[tuple[float, bool]]:
        found = []
        for _, context, continuation in requests:
            row = tuple([*context, *continuation][-(self.max_length + 1) :])
            self.asked.append(("row", (row, len(continuation))))
            scored = self.scorer.score([Row(row, len(continuation))])[0]
            found.append((scored.total, scored.greedy))
        return found

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        found = []
        for request in requests:
            windows = utils.get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0]),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            pairs = [(None, *utils.make_disjoint_window(window)) for window in windows]
            found.append(sum(value for value, _ in self._loglikelihood_tokens(pairs)))
        return found

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs, postprocess_generated_text

        found = []
        for request in requests:
            context, options = request.args
            asked = normalize_gen_kwargs(options, 256)
            until = handle_stop_sequences(asked.pop("until", None), eos=self.tokenizer.decode(self.eot_token_id))
            most = asked.pop("max_gen_toks")
            tokens = tuple(self.tok_encode(context)[-(self.max_length - most) :])
            self.asked.append(("prompt", tokens))
            prompt = Prompt(
                tokens, most, lambda new, until=until: any(stop in self.tokenizer.decode(new) for stop in until)
            )
            (new,) = self.scorer.generate([prompt])
            text = self.tokenizer.decode(new, skip_special_tokens=True)
            found.append(postprocess_generated_text(text, until, None))
        return found

    def apply_chat_template(self, chat_history: Any, add_generation_prompt: bool = True) -> str:
        def made(messages: Any) -> str:
            more = {"add_generation_prompt": add_generation_prompt, "continue_final_message": not add_generation_prompt}
            return str(self.tokenizer.apply_chat_template(messages, tokenize=False, **more))

        try:
            return made(chat_history)
        except TemplateError:
            return made([message for message in chat_history if message["role"] != "system"])


def theirs(folder: Path, scorer: Scorer, tasks: Path, name: str, **settings: Any) -> dict[str, Any]:
    lm = ByTransformers(folder, scorer)
    os.environ["DISABLE_MULTIPROC"] = "1"
    found = evaluator.simple_evaluate(
        lm, tasks=[name], task_manager=TaskManager(include_path=str(tasks), include_defaults=False), **settings
    )
    assert found is not None
    return {
        "numbers": numbers(found["results"])[name],
        "prompts": [list(one["arguments"]) for one in found["samples"][name]],
        "tokens": sorted(lm.asked),
    }


def ours(subject: Subject, scorer: Scorer, tasks: Path, name: str, settings: Settings) -> dict[str, Any]:
    found = evaluated(subject, scorer, read_named([name], tasks).tasks, settings)
    requests = [sample.requests for sample in found.samples[name]]
    asked: list[tuple[str, Any]] = [
        ("prompt", tuple(one.prompt)) if one.prompt else ("row", (tuple(row.tokens), len(row.logprobs)))
        for document in requests
        for one in document
        for row in one.rows
    ]
    return {
        "numbers": numbers(found.results)[name],
        "prompts": [[tuple(request.arguments) for request in document] for document in requests],
        "tokens": sorted(asked),
    }


@pytest.mark.table
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_requests_and_numbers(
    compare: Callable[..., None],
    task: str,
    tokenizer: str,
    subjects: dict[str, tuple[Path, Subject]],
    scorer: Scorer,
    tasks: Path,
) -> None:
    folder, subject = subjects[tokenizer]
    shots = None if TASKS[task]["output_type"] == "loglikelihood_rolling" else 1
    wanted = theirs(folder, scorer, tasks, task, num_fewshot=shots)
    compare(
        KIND,
        f"{task}, {tokenizer}",
        lambda: ours(subject, scorer, tasks, task, current_settings(num_fewshot=shots)),
        wanted,
    )


CHATS = [name for name in TASKS if TASKS[name]["output_type"] != "loglikelihood_rolling"]


@pytest.mark.table
@pytest.mark.parametrize("turns", [True, False])
@pytest.mark.parametrize("shots", [0, 3])
@pytest.mark.parametrize("task", CHATS)
def test_chats(
    compare: Callable[..., None],
    task: str,
    shots: int,
    turns: bool,
    subjects: dict[str, tuple[Path, Subject]],
    scorer: Scorer,
    tasks: Path,
) -> None:
    folder, subject = subjects["post-processor"]
    chat = {} if turns else {"fewshot_as_multiturn": False}  # what its command line does with a template alone: turns
    wanted = theirs(folder, scorer, tasks, task, num_fewshot=shots, apply_chat_template=True, **chat)
    settings = current_settings(num_fewshot=shots, chat=True, multiturn=turns)
    compare(
        KIND,
        f"{task} as a chat, {shots} examples, turns {turns}",
        lambda: ours(subject, scorer, tasks, task, settings),
        wanted,
    )


@pytest.mark.table
@pytest.mark.parametrize("chat", [None, True, False], ids=["plain", "turns", "one message"])
@pytest.mark.parametrize("template", ["plain", "no system"])
@pytest.mark.parametrize("task", ["choice", "described", "prefixed", "said", "text"])
def test_system_instructions(
    compare: Callable[..., None],
    task: str,
    template: str,
    chat: bool | None,
    subjects: dict[str, tuple[Path, Subject]],
    scorer: Scorer,
    tasks: Path,
) -> None:
    """Of a chat, and before an empty prompt; of a whole text, which has no prompt, nothing."""
    folder, subject = subjects[template]
    if chat and TASKS[task]["output_type"] == "loglikelihood_rolling":
        pytest.skip("no messages")
    shots = None if TASKS[task]["output_type"] == "loglikelihood_rolling" else 2
    turns = {} if chat is not False else {"fewshot_as_multiturn": False}
    wanted = theirs(
        folder,
        scorer,
        tasks,
        task,
        num_fewshot=shots,
        system_instruction=SYSTEM,
        apply_chat_template=chat is not None,
        **turns,
    )
    settings = current_settings(
        num_fewshot=shots, system_instruction=SYSTEM, chat=chat is not None, multiturn=bool(chat)
    )
    name = f"{task} under a system instruction, {template}, turns {chat}"
    compare(KIND, name, lambda: ours(subject, scorer, tasks, task, settings), wanted)


def test_resamples_are_the_harnesss(
    compare: Callable[..., None], subjects: dict[str, tuple[Path, Subject]], scorer: Scorer, tasks: Path
) -> None:
    """100,000 of a perplexity's error; a recorded evaluation keeps its own number."""
    folder, subject = subjects["plain"]
    wanted = theirs(folder, scorer, tasks, "likely", num_fewshot=0)["numbers"]
    compare(
        KIND,
        "resamples",
        lambda: ours(subject, scorer, tasks, "likely", current_settings(num_fewshot=0))["numbers"],
        wanted,
    )
    recorded = ours(subject, scorer, tasks, "likely", Settings(num_fewshot=0))["numbers"]
    less = theirs(folder, scorer, tasks, "likely", num_fewshot=0, bootstrap_iters=1000)["numbers"]
    assert recorded == less and recorded["perplexity_stderr,none"] != wanted["perplexity_stderr,none"]


def test_rules_of_an_older_release_put_nothing_around_a_text(
    subjects: dict[str, tuple[Path, Subject]], scorer: Scorer, tasks: Path
) -> None:
    plain, marked = (subjects[name][1] for name in ("plain", "both ends"))
    for task in ("choice", "text", "said"):
        recorded = ours(marked, scorer, tasks, task, Settings())
        assert recorded["tokens"] == ours(plain, scorer, tasks, task, Settings())["tokens"]
        assert recorded["tokens"] != ours(marked, scorer, tasks, task, current_settings())["tokens"]


DOCUMENTS: dict[str, list[dict[str, Any]]] = {
    "choices by letter, three and four": [{"q": {"A": "x", "B": "y"}}, {"q": {"A": "x", "B": "y", "C": "z"}}],
    "a field that the first line lacks": [{"q": "a"}, {"q": "b", "c": "x"}],
    "a field that a later line lacks": [{"q": "a", "c": "x"}, {"q": "b"}],
    "days": [{"q": "2020-01-01", "c": [{"d": "1999-12-31"}]}, {"q": "2021-02-03", "c": [{"d": "2000-01-01"}]}],
    "times": [{"q": "2020-01-01T10:00:00Z"}, {"q": None}],
    "days and words": [{"q": "2020-01-01"}, {"q": "never"}],
    "numbers and words": [{"q": 1, "c": ["a", 1]}, {"q": "b", "c": []}],
    "whole and other numbers": [{"q": 1, "c": [1, 2.5]}, {"q": 2.5, "c": [3]}],
    "numbers beyond 64 bits": [{"q": 2**64 + 1}, {"q": 1}],
    "nothing first": [{"q": None, "c": []}, {"q": True, "c": ["x"]}],
    "inner objects in lists": [{"q": [{"a": 1}]}, {"q": [{"b": "x"}]}],
    "letters": [{"q": "\u2028a\x85b \U0001f600", "": "x"}, {"q": "", "": ""}],
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents(compare: Callable[..., None], name: str, tmp_path: Path) -> None:
    """Of every line, with the types that templates see."""
    from datasets import load_dataset

    path = tmp_path / "test.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in DOCUMENTS[name]), "utf-8")
    wanted = load_dataset("json", data_files={"test": str(path)}, cache_dir=str(tmp_path))["test"]
    task = EvaluationTask("task", {}, {"test": path.read_bytes()})
    compare(KIND, f"documents: {name}", lambda: repr(list(documents(task, 3)["test"])), repr(list(wanted)))


def test_documents_of_an_older_release_have_the_fields_of_the_first_line() -> None:
    task = EvaluationTask("task", {}, {"test": b'{"q": {"A": "2020-01-01"}}\n{"q": {"B": "y"}, "c": 1}\n'})
    assert list(documents(task, 2)["test"]) == [{"q": {"A": "2020-01-01", "B": None}}, {"q": {"A": None, "B": "y"}}]


MANY = json.dumps({"q": [{f"k{number}": 1} for number in range(256)]})


@pytest.mark.parametrize("line", [MANY, '{"q": 1, "q": 2}', '{"q": 1e400}', '{"q": "\\ud83d"}'])
def test_documents_that_the_harness_does_not_read(compare: Callable[..., None], line: str) -> None:
    task = EvaluationTask("task", {}, {"test": f"{line}\n".encode()})
    compare(
        KIND, f"documents: {line[:20]}", lambda: documents(task, 3), None, refusal="a line that names a field twice"
    )


REFUSED = [
    {"repetition_penalty": 1.2},
    {"num_beams": 4},
    {"no_repeat_ngram_size": 3},
    {"max_length": 20},
    {"stopping": True},
    {"do_sample": True, "temperature": 0.7, "top_p": 0.9},
    {"do_sample": True, "temperature": 0.7, "top_k": 5},
    {"do_sample": True},
]


@pytest.mark.parametrize("options", REFUSED, ids=str)
def test_other_ways_of_generating(compare: Callable[..., None], options: dict[str, Any]) -> None:
    compare(KIND, str(options), lambda: generation(options), None, refusal="`generation_kwargs` beyond")


def test_an_older_release_left_some_out() -> None:
    assert generation({"repetition_penalty": 1.2}, rules=1) == ([], 256, 0.0)
    assert generation({"do_sample": True}, rules=1) == ([], 256, 1.0)
    with pytest.raises(UsageError, match="top_p"):
        generation({"do_sample": True, "top_p": 0.9}, rules=1)


NORMALIZED = [
    {"until": "a", "max_tokens": 7},
    {"until": ["a", "b"], "max_completion_tokens": 9},
    {"max_new_tokens": 3, "max_gen_toks": 4, "max_tokens": 5},
    {"temperature": 0.0, "top_p": 0.9, "top_k": 3},
    {"temperature": 0.5},
    {"do_sample": False, "temperature": 0.5},
    {"do_sample": True, "temperature": 0.5, "num_beams": 1},
    {},
]


@pytest.mark.parametrize("options", NORMALIZED, ids=str)
def test_options_of_generation(compare: Callable[..., None], options: dict[str, Any]) -> None:
    from lm_eval.models.utils import normalize_gen_kwargs

    wanted: Any = normalize_gen_kwargs(dict(options), 256)
    heat = float(wanted.get("temperature", 0.0)) if wanted["do_sample"] else 0.0
    compare(KIND, str(options), lambda: generation(options), (wanted["until"], wanted["max_gen_toks"], heat))
