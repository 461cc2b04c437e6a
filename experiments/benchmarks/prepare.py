"""Public benchmarks as tasks in a folder: what `marin eval --task-path` reads, made from files that a user has.

    python -m experiments.benchmarks SOURCES TASKS

SOURCES holds what public repositories publish, unchanged, of one of these benchmarks or of several; each file has to have its
digest below:

    blimp/*.jsonl                     github.com/alexwarstadt/blimp, data/          (CC-BY)
    gsm8k/train.jsonl, test.jsonl     github.com/openai/grade-school-math           (MIT)
    hellaswag/hellaswag_val_full.txt  github.com/klosax/hellaswag_text_data, six lines a document (MIT)
    truthfulqa/TruthfulQA.csv         github.com/sylinrl/TruthfulQA                 (Apache-2.0)

The task files are those of the installed lm-evaluation-harness: prompts, metrics, filters and stop strings as they are, the
data set of the hub replaced by the file. Left out are ``truthfulqa_mc2`` and ``truthfulqa_gen`` (docs/evaluation.md), and
HellaSwag's clean-up, which the published text file already has.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from marin.errors import DataError, DataMissing, MissingEvidence
from marin.plugins.evaluation.harness.tasks import SPLITS

Documents = Iterable[Mapping[str, Any]]
DROPPED = ("dataset_name", "dataset_path", "dataset_kwargs", "process_docs", "tag", "include", "group")
"""Of a task file of the harness: where its data lies on the hub, what cleans it there, and what it is called with others."""


@dataclass(frozen=True)
class Benchmark:
    """``files``: patterns below SOURCES. ``digest``: sha256 of all of them, one after the other. ``tasks``: the harness's task
    files by the tasks made from them, each with its documents by split; ``group``: what all of them are called together."""

    name: str
    files: str
    digest: str
    tasks: Callable[[list[Path]], Iterator[tuple[str, str, dict[str, Documents]]]]
    group: str = ""


def lines(path: Path) -> list[dict[str, Any]]:
    """The documents of JSON lines."""
    return [json.loads(line) for line in path.read_bytes().splitlines() if line.strip()]


def blimp(paths: list[Path]) -> Iterator[tuple[str, str, dict[str, Documents]]]:
    """One task for each paradigm."""
    for path in paths:
        yield f"blimp_{path.stem}", "blimp/_template_yaml", {"train": lines(path)}


def gsm8k(paths: list[Path]) -> Iterator[tuple[str, str, dict[str, Documents]]]:
    """Examples from the training split."""
    yield "gsm8k", "gsm8k/gsm8k.yaml", {path.stem: lines(path) for path in paths}


def hellaswag(paths: list[Path]) -> Iterator[tuple[str, str, dict[str, Documents]]]:
    """Six lines a document: the context, the number of the right ending, four endings."""
    text = paths[0].read_text("utf-8").split("\n")
    documents = [
        {"query": text[at], "choices": text[at + 2 : at + 6], "label": int(text[at + 1])}
        for at in range(0, len(text) - 5, 6)
    ]
    yield "hellaswag", "hellaswag/hellaswag.yaml", {"validation": documents}


def truthfulqa(paths: list[Path]) -> Iterator[tuple[str, str, dict[str, Documents]]]:
    """mc1: the best answer first, then every false one, each with a full stop at its end."""

    def sentence(answer: str) -> str:
        return answer if answer.endswith(".") else f"{answer}."

    with paths[0].open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    documents = []
    for row in rows:
        false = [sentence(part.strip()) for part in row["Incorrect Answers"].split(";") if part.strip()]
        choices = [sentence(row["Best Answer"].strip()), *false]
        documents.append(
            {"question": row["Question"], "mc1_targets": {"choices": choices, "labels": [1] + [0] * len(false)}}
        )
    yield "truthfulqa_mc1", "truthfulqa/truthfulqa_mc1.yaml", {"validation": documents}


BENCHMARKS = (
    Benchmark(
        "blimp", "blimp/*.jsonl", "93e7675caabd9d0d81e7145ab25f59ae8a2528fb69c5394e6e52707b427c3397", blimp, "blimp"
    ),
    Benchmark("gsm8k", "gsm8k/*.jsonl", "82b9941c2317fec851220018ca56c4363f63f7c91d9e9855b4e0845d1289be6e", gsm8k),
    Benchmark(
        "hellaswag",
        "hellaswag/hellaswag_val_full.txt",
        "d572539320eb2050e858ca34b495bbe2103e3b3f1391a9c3bcdf215b0bb93bd1",
        hellaswag,
    ),
    Benchmark(
        "truthfulqa",
        "truthfulqa/TruthfulQA.csv",
        "99d6ae7755e3b435eade956068c9de7c0c474770344237aeb66b56519ba4b697",
        truthfulqa,
    ),
)


def prepare(sources: Path, out: Path, *, pinned: bool = True) -> list[str]:
    """Fill ``out`` with task files and their data, of those benchmarks whose files are there; the tasks and groups that were
    made. ``pinned`` False: the files are others of the same shape (a test's own).

    Raises:
        DataMissing: no benchmark's files are there.
        DataError: they are not those that were pinned.
        MissingEvidence: lm-evaluation-harness is not installed.
    """
    found = {benchmark: sorted(sources.glob(benchmark.files)) for benchmark in BENCHMARKS}
    if not any(found.values()):
        raise DataMissing(
            "no benchmark's files are there",
            where=str(sources),
            expected=", ".join(benchmark.files for benchmark in BENCHMARKS),
            found="none",
            cure="`marin data fetch blimp`, or clone a repository that experiments/benchmarks/prepare.py names",
        )
    made = []
    for benchmark, paths in found.items():
        if not paths:
            continue
        whole = hashlib.sha256()
        for path in paths:
            whole.update(path.read_bytes())
        if pinned and whole.hexdigest() != benchmark.digest:
            raise DataError(
                "a benchmark's files are others",
                where=f"{sources}/{benchmark.files}",
                expected=benchmark.digest,
                found=whole.hexdigest(),
                cure="take the files as they are published",
            )
        out.mkdir(parents=True, exist_ok=True)
        names = [_write_task(out, *task) for task in benchmark.tasks(paths)]
        if benchmark.group:
            means = [{"metric": "acc", "aggregation": "mean", "weight_by_size": False}]
            group = {"group": benchmark.group, "task": names, "aggregate_metric_list": means}
            (out / f"{benchmark.group}.yaml").write_text(yaml.safe_dump(group, sort_keys=False), "utf-8")
        made += [benchmark.group] if benchmark.group else names
    return made


def _write_task(out: Path, name: str, harness_file: str, splits: Mapping[str, Documents]) -> str:
    config = {key: value for key, value in _of_harness(harness_file).items() if key not in DROPPED}
    files = {split: f"{name}_{split}.jsonl" for split in splits}
    config = {key: value for key, value in config.items() if key not in SPLITS or value in files}
    config |= {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": files}}
    (out / f"{name}.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    for split, documents in splits.items():
        text = "".join(json.dumps(document, ensure_ascii=False) + "\n" for document in documents)
        (out / files[split]).write_text(text, "utf-8")
    return name


class _WithoutCode(yaml.SafeLoader):
    """YAML's plain values; the name of a function is no value."""


_WithoutCode.add_constructor("!function", lambda loader, node: None)


def _of_harness(name: str) -> dict[str, Any]:
    """A task file of the installed harness, whose package is not imported."""
    found = find_spec("lm_eval")
    if found is None or not found.submodule_search_locations:
        raise MissingEvidence(
            "lm-evaluation-harness is not installed",
            where=name,
            expected="its task files",
            found="none",
            cure="install requirements-evaluation.lock into this environment",
        )
    text = (Path(found.submodule_search_locations[0]) / "tasks" / name).read_bytes()
    read: dict[str, Any] = yaml.load(text, Loader=_WithoutCode)  # noqa: S506  a SafeLoader
    return read


def main() -> None:
    """The folder, from the command line."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("sources", type=Path)
    asked.add_argument("tasks", type=Path)
    given = asked.parse_args()
    try:
        sys.stdout.write("".join(f"{name}\n" for name in prepare(given.sources, given.tasks)))
    except (DataError, DataMissing, MissingEvidence) as error:
        sys.exit(f"benchmarks: {error}")


if __name__ == "__main__":
    main()
