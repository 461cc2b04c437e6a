"""Public benchmarks from files: small ones of the same shape, through the harness's own task files; others are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

pytest.importorskip("lm_eval", reason="the extra `evaluation` (make evaluation)")

import lm_eval

from experiments.benchmarks.prepare import BENCHMARKS, prepare
from experiments.benchmarks.table import table
from marin.errors import DataError, DataMissing
from marin.evaluation.scoring import Scorer
from marin.evaluation.subject import Subject
from marin.plugins.evaluation.harness.recording import evaluated
from marin.plugins.evaluation.harness.tasks import SPLITS, read_named
from marin.plugins.evaluation.recorded.records import Settings

pytestmark = pytest.mark.evaluation

QUESTIONS = [{"question": f"{n} plus {n}?", "answer": f"It is <<{n}+{n}={2 * n}>>.\n#### {2 * n}"} for n in range(7)]
DOCUMENTS = ("Eating: He eats.", "1", "He flies.", "He is full.", "He is a dog.", "He sings.")
CSV = (
    "Type,Category,Question,Best Answer,Correct Answers,Incorrect Answers,Source\n"
    'A,B,"Is it, so?",It is not,It is not; No.,Yes it is;It is so.,https://example.org\n'
)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Files as the repositories publish them, made here."""
    place = tmp_path / "sources"
    for name in ("blimp", "gsm8k", "hellaswag", "truthfulqa"):
        (place / name).mkdir(parents=True)
    pairs = [{"sentence_good": f"the dogs {word}", "sentence_bad": f"the dog {word}"} for word in ("run", "sit")]
    for name in ("one", "other"):
        (place / "blimp" / f"{name}.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), "utf-8")
    for name in ("train", "test"):
        (place / "gsm8k" / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in QUESTIONS), "utf-8")
    (place / "hellaswag" / "hellaswag_val_full.txt").write_text("\n".join(DOCUMENTS * 2) + "\n", "utf-8")
    (place / "truthfulqa" / "TruthfulQA.csv").write_text(CSV, "utf-8")
    return place


def test_files_of_the_published_shape_are_evaluated(
    sources: Path, tmp_path: Path, subject: Subject, scorer: Scorer
) -> None:
    names = prepare(sources, tmp_path / "tasks", pinned=False)
    assert names == ["blimp", "gsm8k", "hellaswag", "truthfulqa_mc1"]
    tasks = read_named(names, tmp_path / "tasks").tasks
    groups = read_named(names, tmp_path / "tasks").groups
    found = evaluated(subject, scorer, tasks, Settings(limit=1, groups=groups))
    assert {
        name: {m for m in metrics if "," in m and "stderr" not in m} for name, metrics in found.results.items()
    } == {
        "blimp_one": {"acc,none"},
        "blimp_other": {"acc,none"},
        "blimp": {"acc,none"},
        "gsm8k": {"exact_match,strict-match", "exact_match,flexible-extract"},
        "hellaswag": {"acc,none", "acc_norm,none"},
        "truthfulqa_mc1": {"acc,none"},
    }
    asked = {name: [request.arguments for request in samples[0].requests] for name, samples in found.samples.items()}
    assert asked["hellaswag"] == [["Eating: He eats.", f" {end}"] for end in DOCUMENTS[2:]]
    assert found.samples["hellaswag"][0].target == 1
    assert asked["gsm8k"][0][0].count("Question: ") == 6, "five examples come first"
    assert [arguments[1] for arguments in asked["truthfulqa_mc1"]] == [" It is not.", " Yes it is.", " It is so."]
    assert asked["truthfulqa_mc1"][0][0].endswith("Q: Is it, so?\nA:")
    shown = table([{"results": found.results, "requests": 13, "truncated": 3}] * 3)
    assert "gsm8k" in shown and "blimp_one" not in shown and "13/3" in shown


@pytest.mark.parametrize(
    "file",
    [
        "arc/arc_easy",
        "piqa/piqa",
        "openbookqa/openbookqa",
        "lambada/lambada_openai",
        "sciq/sciq",
        "super_glue/boolq/default",
    ],
)
def test_task_files_of_the_harness_are_data(file: str, tmp_path: Path) -> None:
    own = Path(lm_eval.__file__).parent / "tasks" / f"{file}.yaml"
    config = {key: value for key, value in yaml.safe_load(own.read_bytes()).items() if key != "dataset_name"}
    splits = {config[key]: "rows.jsonl" for key in SPLITS if config.get(key)}
    config |= {"dataset_path": "json", "dataset_kwargs": {"data_files": splits}}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(config), "utf-8")
    (tmp_path / "rows.jsonl").write_text('{"question": "Why?"}\n', "utf-8")
    (task,) = read_named([config["task"]], tmp_path).tasks
    assert config["should_decontaminate"] is True and not [key for key in task.config if "decontam" in key]


def test_files_that_are_not_the_pinned_ones_are_refused(sources: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="are others") as refused:
        prepare(sources, tmp_path / "tasks")
    assert BENCHMARKS[0].digest in str(refused.value) and not (tmp_path / "tasks").exists()


def test_tasks_are_made_of_the_benchmarks_that_are_there(sources: Path, tmp_path: Path) -> None:
    for name in ("gsm8k", "hellaswag", "truthfulqa"):
        shutil.rmtree(sources / name)
    assert prepare(sources, tmp_path / "tasks", pinned=False) == ["blimp"]
    assert {path.name.split("_")[0] for path in (tmp_path / "tasks").iterdir()} == {"blimp", "blimp.yaml"}
    shutil.rmtree(sources / "blimp")
    with pytest.raises(DataMissing, match=r"blimp/\*\.jsonl"):
        prepare(sources, tmp_path / "tasks", pinned=False)
