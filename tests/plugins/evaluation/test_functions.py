"""Functions of the installed harness in a task: the numbers of the harness itself, and nothing of a stranger's code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("lm_eval", reason="the extra `evaluation` (make evaluation)")

import datasets
import lm_eval.tasks
from lm_eval import evaluator
from lm_eval.tasks import TaskManager

from marin.errors import UsageError
from marin.evaluation.scoring import Scorer
from marin.evaluation.subject import Subject
from marin.plugins.evaluation.harness import computing, functions
from marin.plugins.evaluation.harness.model import Harness
from marin.plugins.evaluation.harness.recording import evaluated
from marin.plugins.evaluation.harness.tasks import checked, read_named, with_functions
from marin.plugins.evaluation.recorded.evaluated import numbers
from marin.plugins.evaluation.recorded.records import Settings
from marin.plugins.evaluation.recorded.task import EvaluationTask

pytestmark = pytest.mark.evaluation

INSTALLED = Path(lm_eval.tasks.__file__).parent
OPTIONS = {f"option_{letter}": letter * 2 for letter in "abcd"}
OFFERED = {f"option_{number}": f"o{number}" if number < 4 else None for number in range(10)}
BOXED = {"question": "Was?", "answer": "B", "cot_content": "A: Denken wir.", **OFFERED}
CASES: dict[str, tuple[str, dict[str, list[dict[str, Any]]]]] = {
    "documents": (
        "hellaswag/hellaswag.yaml",
        {
            "validation": [
                {
                    "ctx_a": "A man [x] sits",
                    "ctx_b": "he",
                    "activity_label": "Sit",
                    "endings": list("abcd"),
                    "label": "1",
                },
                {
                    "ctx_a": "We go",
                    "ctx_b": "and",
                    "activity_label": "Go",
                    "endings": ["x [title] y", "b", "c", "d"],
                    "label": "0",
                },
            ]
        },
    ),
    "prompts": (
        "winogrande/default.yaml",
        {
            "validation": [
                {
                    "sentence": "The dog saw the cat and _ ran off.",
                    "option1": "the dog",
                    "option2": "the cat",
                    "answer": "2",
                },
                {"sentence": "So _ won.", "option1": "I", "option2": "he", "answer": "1"},
            ]
        },
    ),
    "numbers": (
        "wikitext/wikitext.yaml",
        {"test": [{"page": " = Dogs = \n the dog 's tail , 3 @.@ 5 cm ."}, {"page": "It was ( so ) said ."}]},
    ),
    "names that a file makes when it is loaded": (
        "global_mmlu/full/pl/global_mmlu_full_pl_anatomy.yaml",
        {
            split: [
                {"subject": subject, "question": f"q {subject} ", "answer": "C", **OPTIONS}
                for subject in ("anatomy", "law")
            ]
            for split in ("test", "dev")
        },
    ),
    "examples, and a file that reads its own name": (
        "mmlu_prox/de/mmlu_prox_de_biology.yaml",
        {split: [{**BOXED, "category": "biology"}, {**BOXED, "category": "law"}] for split in ("test", "validation")},
    ),
}


def take(folder: Path, source: str, data: dict[str, list[dict[str, Any]]]) -> Path:
    """A copy of the folder of a task file of the harness, and a task ``own`` by it over these documents."""
    place = folder / "own" / Path(source).parent
    if not place.exists():
        shutil.copytree(INSTALLED / Path(source).parent, place, ignore=shutil.ignore_patterns("__pycache__"))
    said = {
        "include": Path(source).name,
        "task": "own",
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": {split: str(place / f"{split}.jsonl") for split in data}},
        **{f"{split}_split": None for split in ("training", "validation", "test") if split not in data},
        **(
            {"num_fewshot": 1, "generation_kwargs": {"max_gen_toks": 4, "until": ["."]}}
            if "mmlu_prox" in source
            else {}
        ),
    }
    (place / "own.yaml").write_text(yaml.safe_dump(said), "utf-8")
    for split, rows in data.items():
        (place / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return place


@pytest.mark.parametrize(("source", "data"), CASES.values(), ids=CASES)
def test_the_numbers_are_those_of_the_harness_itself(
    folder: Path,
    tmp_path: Path,
    subject: Subject,
    scorer: Scorer,
    source: str,
    data: dict[str, list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = take(folder, source, data)
    (task,) = read_named(["own"], place).tasks
    json.dumps(task.config, allow_nan=False)
    settings = Settings()
    ours, again = (evaluated(subject, scorer, [task], settings) for _ in range(2))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    loaded = TaskManager(include_path=place, include_defaults=False).load(["own"])
    loaded["tasks"]["own"].set_fewshot_seed(settings.seed)
    if loaded["tasks"]["own"].get_config("num_fewshot") is None:
        loaded["tasks"]["own"].set_config(key="num_fewshot", value=0)
    theirs = evaluator.evaluate(
        Harness(subject, scorer, 1234), loaded, bootstrap_iters=settings.bootstrap, log_samples=True
    )
    told = numbers(ours.results)
    assert told["own"] and told == numbers({"own": theirs["results"]["own"]})
    kept = [row for row in next(iter(data.values())) if row.get("subject", row.get("category")) != "law"]
    assert len(ours.samples["own"]) == len(theirs["samples"]["own"]) == len(kept)
    asked = [request.arguments[0] for sample in ours.samples["own"] for request in sample.requests]
    assert asked == [one["arguments"][n][0] for one in theirs["samples"]["own"] for n in range(len(one["arguments"]))]
    body = ours.body(subject, f"sha256:{'1' * 64}")
    files, others = (found.write(body) for found in (ours, again))
    assert files == others, "no address of a function in the harness's own file"
    config = json.loads(files["results.json"])["configs"]["own"]
    assert any(functions.is_function(value) for value in config.values())


def test_what_draws_draws_the_same_each_time(folder: Path, subject: Subject, scorer: Scorer) -> None:
    rows = [
        {"Question": f"q{n}", "Correct Answer": "yes", **{f"Incorrect Answer {k}": f"no{k}" for k in (1, 2, 3)}}
        for n in range(6)
    ]
    place = take(folder, "gpqa/zeroshot/_gpqa_zeroshot_yaml", {"train": rows})
    said = yaml.safe_load((place / "own.yaml").read_text())
    (place / "own.yaml").write_text(yaml.safe_dump({**said, "training_split": None, "validation_split": "train"}))
    (task,) = read_named(["own"], place).tasks
    process = with_functions(task)["process_docs"]
    found = [process(datasets.Dataset.from_list(rows))["answer"] for _ in range(2)]
    assert found[0] == found[1] and len(set(found[0])) > 1
    first, second = (evaluated(subject, scorer, [task], Settings()).samples for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("lm_eval.tasks.humaneval.utils.pass_at_k", "evaluate"),
        ("lm_eval.tasks.truthfulqa.utils.process_results_mc2", "numpy.exp"),
        ("lm_eval.tasks.minerva_math.utils.process_results", "importlib.metadata|ImportError"),
        ("lm_eval.tasks._yaml_loader.load_yaml", "getattr"),
        ("lm_eval.tasks.arab_culture.utils_mcq.doc_to_choice", "os"),
        ("lm_eval.tasks.translation.utils.code_to_language", "pycountry"),
        ("lm_eval.tasks.hellaswag.utils.datasets", ""),
        ("lm_eval.tasks.hellaswag.utils.absent", "absent"),
        ("lm_eval.tasks.hellaswag.utils.__builtins__", ""),
        ("lm_eval.tasks.gpqa.zeroshot.utils.random", ""),
        ("lm_eval.utils.make_table", "lm_eval.utils"),
        ("os.system", "os.py"),
        ("utils.run", "utils.py"),
    ],
)
def test_other_code_is_refused_by_name(folder: Path, written: str, found: str) -> None:
    (folder / "utils.py").write_text("raise SystemExit('executed')\n", "utf-8")
    text = (folder / "pairs.yaml").read_text().replace("task: pairs", "task: odd")
    for key in ("process_docs", "process_results", "doc_to_text"):
        (folder / "odd.yaml").write_text(f"{text}{key}: !function {written}\n", "utf-8")
        with pytest.raises(UsageError, match=f"a task that names code.*found .*({found})"):
            read_named(["odd"], folder)


def test_a_file_of_the_harness_with_one_byte_changed_is_a_strangers(folder: Path) -> None:
    place = take(folder, *CASES["documents"])
    (place / "utils.py").write_text((place / "utils.py").read_text() + "\n", "utf-8")
    with pytest.raises(UsageError, match="a file of the installed harness, unchanged"):
        read_named(["own"], place)


def test_what_is_recorded_is_only_a_name(folder: Path) -> None:
    """Who wrote an event chooses none but functions that compute, and those by their digest."""
    (task,) = read_named(["own"], take(folder, *CASES["documents"])).tasks
    said = task.config["process_docs"]
    assert said["function"] == "hellaswag/utils.py:process_docs"
    other = {"function": "gpqa/zeroshot/utils.py:process_docs", "digest": said["digest"]}
    for wrong in (
        {**said, "digest": f"sha256:{'0' * 64}"},
        other,
        {**said, "function": "../../../os.py:system"},
        {**said, "function": "hellaswag/utils.py:datasets.load_dataset"},
        {**said, "function": "hellaswag/utils.py:re"},
        {**said, "function": "humaneval/utils.py:pass_at_k"},
        {**said, "function": "absent.py:f"},
        {**said, "function": ""},
        {**said, "more": "x"},
        "process_docs",
    ):
        with pytest.raises(UsageError, match="process_docs"):
            checked(replace_docs(task, wrong), "the stored task")
    for key in ("generation_kwargs", "metadata", "doc_to_choice"):  # a mapping of that form elsewhere is only a mapping
        kept = with_functions(EvaluationTask(task.name, {**task.config, key: {"a": said}}, task.data))
        assert kept[key] == {"a": said}


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., dict[str, str]]]:
    """The installed harness has one file with this code: a function of it, as it is recorded."""
    own = tmp_path / "harness" / "own-tasks"
    own.mkdir(parents=True)
    (own / "side.json").write_text("[1]")
    caches = (computing.files_by_name, computing._module, computing._judged)
    monkeypatch.setattr(computing, "installed_folder", lambda: own.parent)

    def write(code: str, name: str = "f") -> dict[str, str]:
        for cache in caches:
            cache.cache_clear()
        (own / "utils.py").write_text(code, "utf-8")
        said: dict[str, str] = functions.resolved(functions.Mark(f"utils.{name}", own / "task.yaml"))
        return said

    yield write
    for cache in caches:
        cache.cache_clear()


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import os\nA = os.getenv('A')\ndef f(doc): return A", "os.getenv"),
        ("from os import environ\nA = environ['A']\ndef f(doc): return A", "os.environ"),
        ("import os\nclass C:\n    a = os.getpid()\ndef f(doc): return doc", "os.getpid"),
        ("import os\nclass C:\n    def g(self, a=os.getpid()): pass\ndef f(doc): return doc", "os.getpid"),
        ("import os\ndef g(*, a=os.getpid()): pass\ndef f(doc): return doc", "os.getpid"),
        ("def f(doc): return hash(doc['q'])", "hash"),
        ("def f(doc): return id(doc)", "id"),
        ("def f(doc): raise SystemExit", "SystemExit"),
        ("raise Exception('a package is missing')", "Exception: a package is missing"),
        ("print('said')\n1 / 0\ndef f(doc): return doc", "ZeroDivisionError"),
    ],
)
def test_code_that_would_find_something_else_elsewhere_is_refused(
    harness: Callable[..., dict[str, str]], capsys: pytest.CaptureFixture[str], code: str, found: str
) -> None:
    with pytest.raises(UsageError, match=f"a task that names code.*found {found}"):
        harness(code)
    assert capsys.readouterr() == ("", "")


def test_a_file_may_read_its_own_folder_when_it_is_loaded(
    harness: Callable[..., dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    code = """
import json, os
print("a package would be better")
HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(HERE, "side.json")) as file:
    SIDE = json.load(file)
class Kept:
    most = 3
    half = most // 2
    def twice(self, number=most): return 2 * number
def f(doc, most=Kept.most): return SIDE + [most]
"""
    assert functions.function_in(harness(code), "here")({}) == [1, 3]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "body",
    [
        "raise Exception('odd')",
        "raise StopIteration",
        "raise RuntimeError('odd')",
        "raise OSError('odd')",
        "import re; return re.compile('(')",
        "return f(*given)",
        "return object()",
        "return {'acc': [], 'doc_id': {}}",
        "return {'doc_id': [0]}",
        "return {'metrics': 0, 'filter': {}}",
    ],
)
@pytest.mark.parametrize("key", ["process_docs", "doc_to_text", "doc_to_choice", "process_results", "aggregation"])
def test_whatever_a_function_raises_or_gives_is_an_answer(
    folder: Path, subject: Subject, scorer: Scorer, harness: Callable[..., dict[str, str]], key: str, body: str
) -> None:
    (task,) = read_named(["pairs"], folder).tasks
    said = harness(f"def f(*given): {body}")
    changed = {key: said} if key != "aggregation" else {"metric_list": [{"metric": "acc", key: said}]}
    with suppress(UsageError):  # some make an evaluation
        evaluated(subject, scorer, [checked(replace(task, config={**task.config, **changed}), "stored")], Settings())


def replace_docs(task: EvaluationTask, value: Any) -> EvaluationTask:
    return replace(task, config={**task.config, "process_docs": value})


def test_a_metric_of_no_function_is_one_of_the_harness(folder: Path) -> None:
    text = (
        (folder / "pairs.yaml").read_text().replace("task: pairs", "task: odd").replace("metric: acc", "metric: mine")
    )
    (folder / "odd.yaml").write_text(text, "utf-8")
    with pytest.raises(UsageError, match="metric_list"):
        read_named(["odd"], folder)
