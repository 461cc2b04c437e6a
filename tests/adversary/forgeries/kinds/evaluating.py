"""Class 16: what an operator signs of an evaluation that was never made so. Each forgery is complete: the stored tree, its
digests in the event and the event's identity agree. Needs lm-evaluation-harness beside the lock (`make evaluation`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from marin.history.runs import evaluation_stream
from marin.kinds.families.measured import EVALUATION_RECORDED, EvaluationRecorded
from marin.plugins.evaluation.harness import functions
from marin.plugins.evaluation.recorded import records
from marin.plugins.evaluation.recorded.task import EvaluationTask
from marin.record.events import CHECKPOINT_SAVED, TRAIN_SEGMENT
from tests.adversary.forgeries.registry import kind
from tests.adversary.forgeries.workshop import OTHER, Entry, Forgery, Shop

Files = dict[str, Any]
"""What an operator changes: the event's ``body``, and by name what the tree's files hold (lines of samples and data as
lists)."""


def _entry(shop: Shop) -> Entry:
    stream = evaluation_stream(shop.run)
    found = [entry for entry in shop.events if (entry.type, entry.stream) == (EVALUATION_RECORDED, stream)]
    if not found:
        raise Forgery("no evaluation is recorded: make evaluation")
    return found[-1]


def _forged(shop: Shop, change: Callable[[Files], None]) -> None:
    """The event and its tree changed, and everything that follows from them made to agree."""
    entry = _entry(shop)
    body = entry.body

    def edit(folder: Path) -> None:
        files: Files = {"body": body}
        for path in sorted(folder.rglob("*.json*")):
            name = path.relative_to(folder).as_posix()
            text = path.read_text("utf-8")
            files[name] = (
                [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
            )
        change(files)
        for name, value in files.items():
            if name.endswith(".jsonl"):
                (folder / name).write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in value))
            elif name != "body":
                text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
                (folder / name).write_text(text + "\n", "utf-8")
        body["results"] = files["results.json"]
        asked = 0
        for task in body["tasks"]:
            config, data = files[f"tasks/{task}.json"], (folder / "data" / task / "test.jsonl").read_bytes()
            samples = list(records.read_samples(folder, task))
            told = records.task_event(EvaluationTask(task, config, {"test": data}), samples)
            body["tasks"][task] = msgspec.to_builtins(told)
            asked += sum(len(sample.requests) for sample in samples)
        body["requests"] = asked

    body["samples"] = shop.altered(body["samples"], edit).digest
    body["identity"] = records.identity_of(msgspec.convert(body, EvaluationRecorded))


def _kind(name: str, says: str, outcome: str = "FAIL") -> Callable[[Callable[[Files], None]], Callable[[Files], None]]:
    """Enter a kind by what it changes."""

    def enter(change: Callable[[Files], None]) -> Callable[[Files], None]:
        kind(16, name, of="second", verdict="evaluation", outcomes=(outcome,), says=says)(
            lambda shop: _forged(shop, change)
        )
        return change

    return enter


@kind(16, "an honest run with an honest evaluation", of="second", verdict="evaluation", honest=True)
def honest(shop: Shop) -> None:
    _entry(shop)


@_kind("a forged accuracy", "task pairs: acc,none: recorded")
def accuracy(files: Files) -> None:
    acc = files["results.json"]["pairs"]
    acc["acc,none"] = (0.75 if float.fromhex(acc["acc,none"]) != 0.75 else 0.5).hex()


@_kind("a forged standard error", "task pairs: acc_stderr,none: recorded")
def error(files: Files) -> None:
    files["results.json"]["pairs"]["acc_stderr,none"] = (0.125).hex()


@_kind("an outcome of one sample forged", "task pairs, sample 1: outcome")
def outcome(files: Files) -> None:
    metrics = files["samples/pairs.jsonl"][1]["outcomes"][0]["metrics"]
    metrics["acc"] = (1.0 - float.fromhex(metrics["acc"])).hex()


@_kind("one bit of one token's log-likelihood", "task pairs, sample 2: request 1: token")
def likelihood(files: Files) -> None:
    values = files["samples/pairs.jsonl"][2]["requests"][1]["rows"][0]["logprobs"]
    values[1] = (float.fromhex(values[1]) * (1 + 2**-20)).hex()


@_kind("two samples swapped", "task pairs, sample 0: ")
def swapped(files: Files) -> None:
    lines = files["samples/pairs.jsonl"]
    lines[0], lines[1] = lines[1] | {"doc": 0}, lines[0] | {"doc": 1}


@_kind("another prompt", "task pairs, sample 0: request 0: prompt")
def prompt(files: Files) -> None:
    files["samples/pairs.jsonl"][0]["requests"][0]["arguments"][0] = "Say it: "


@_kind("another few-shot seed", "prompt: recorded")
def fewshot(files: Files) -> None:
    files["body"]["settings"]["seed"] = 77


@_kind("other examples in a prompt", "task said, sample 1: request 0: prompt")
def examples(files: Files) -> None:
    files["samples/said.jsonl"][1]["requests"][0]["arguments"][0] = "x y a"


@_kind("an edited gold answer", "task said, sample")
def gold(files: Files) -> None:
    files["data/said/test.jsonl"][0]["a"] = "three"


@_kind("a generated text edited", "task said, sample 0: request 0: text")
def text(files: Files) -> None:
    files["samples/said.jsonl"][0]["requests"][0]["text"] = "two"


@_kind("a generated token edited", "task said, sample 0: request 0: token")
def token(files: Files) -> None:
    row = files["samples/said.jsonl"][0]["requests"][0]["rows"][0]
    row["tokens"][-1] = (row["tokens"][-1] + 1) % 300


@_kind("a sample left out", "task pairs: 3 documents are recorded, 4 are there")
def left_out(files: Files) -> None:
    files["samples/pairs.jsonl"].pop()


@_kind("a task that names Python code", "not executed", outcome="UNAVAILABLE")
def code(files: Files) -> None:
    files["tasks/pairs.json"]["process_results"] = "helper.sh"


def _documents() -> dict[str, str]:
    """A function of the harness that adds fields to documents of whatever form."""
    written = functions.Mark("lm_eval.tasks.cnn_dailymail.utils.process_docs", Path("task.yaml"))
    said: dict[str, str] = functions.resolved(written)
    return said


def _named(function: str, digest: str) -> dict[str, str]:
    return {"function": function, "digest": digest}


@_kind("a function of the harness that executes", "not executed", outcome="UNAVAILABLE")
def executing(files: Files) -> None:
    files["tasks/pairs.json"]["process_results"] = _named("humaneval/utils.py:pass_at_k", OTHER)


@_kind("a function of the harness with another digest", "not executed", outcome="UNAVAILABLE")
def digest(files: Files) -> None:
    files["tasks/pairs.json"]["metric_list"][0]["aggregation"] = _named(
        "ruler/common_utils.py:aggregate_metrics", OTHER
    )


@_kind("another function of the harness under a digest", "not executed", outcome="UNAVAILABLE")
def function(files: Files) -> None:
    said = _documents()
    files["tasks/pairs.json"]["process_docs"] = {**said, "function": "winogrande/preprocess_winogrande.py:doc_to_text"}


@_kind("a function of the harness that gives other documents", "task pairs, sample 0")
def documents(files: Files) -> None:
    files["tasks/pairs.json"]["process_docs"] = _documents()


@_kind("a template that reaches out of its sandbox", "not executed", outcome="UNAVAILABLE")
def template(files: Files) -> None:
    files["tasks/pairs.json"]["doc_to_text"] = "{{ ''.__class__.__mro__[1].__subclasses__() }}"


@_kind("an evaluation of a state that nobody has", "state: expected")
def nobody(files: Files) -> None:
    files["body"]["state"] = OTHER


@_kind("a limit that was not kept", "documents are recorded")
def limit(files: Files) -> None:
    files["body"]["settings"]["limit"] = 2


@kind(
    16,
    "numbers of the last state told of an earlier one",
    of="second",
    verdict="evaluation",
    outcomes=("FAIL",),
    says="log-likelihood recorded",
)
def earlier(shop: Shop) -> None:
    saved = shop.all(CHECKPOINT_SAVED, run=shop.base.run)[0].body

    def change(files: Files) -> None:
        files["body"] |= {"state": saved["state"], "step": saved["step"]}

    _forged(shop, change)


@kind(
    16,
    "the last state told as that of an earlier train step",
    of="second",
    verdict="evaluation",
    outcomes=("FAIL",),
    says="the records contradict each other",
)
def dated(shop: Shop) -> None:
    first, *_, last = shop.all(CHECKPOINT_SAVED, run=shop.base.run)
    shop.remove(last)

    def change(files: Files) -> None:
        first.body["state"] = files["body"]["state"]
        files["body"]["step"] = first.body["step"]

    _forged(shop, change)


@kind(16, "an evaluation of a state that no segment leads to", verdict="evaluation", says="with which none does")
def planted(shop: Shop) -> None:
    segment, saved = shop.all(TRAIN_SEGMENT)[0].body, shop.all(CHECKPOINT_SAVED)[-1]
    body = saved.body | {"step": segment["start"] + 1, "state": OTHER}
    shop.again(saved, before=True).body |= body
    task = {"config": OTHER, "data": {"test": OTHER}, "prompts": OTHER, "documents": 3}
    told = {
        "run": shop.run,
        "step": body["step"],
        "state": OTHER,
        "tokenizer": shop.output("tokenizer")["digest"],
        "identity": OTHER,
        "harness": "0.4.9",
        "code": OTHER,
        "lock": "",
        "settings": {},
        "tasks": {"mmlu": task},
        "results": {"mmlu": {"acc,none": (1.0).hex()}},
        "samples": saved.body["artifact"],
        "requests": 3,
        "truncated": 0,
    }
    shop.add(EVALUATION_RECORDED, told, stream=evaluation_stream(shop.run))


@kind(
    16,
    "data exchanged in the tree, not in the event",
    of="second",
    verdict="evaluation",
    outcomes=("FAIL",),
    says="its data test is not the recorded one",
)
def exchanged(shop: Shop) -> None:
    entry = _entry(shop)

    def edit(folder: Path) -> None:
        path = folder / "data" / "said" / "test.jsonl"
        path.write_text(path.read_text("utf-8").replace("two", "three"), "utf-8")

    entry.body["samples"] = shop.altered(entry.body["samples"], edit).digest


@kind(
    16,
    "better numbers recorded a second time",
    of="second",
    verdict="evaluation",
    outcomes=("FAIL",),
    says="acc,none: recorded",
)
def twice(shop: Shop) -> None:
    first = _entry(shop)
    shop.again(first, before=True)
    _forged(shop, accuracy)
