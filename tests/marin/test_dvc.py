"""dvc.yaml says what the steps say: the same code, the same inputs, and every section of the recipe that is read."""

from __future__ import annotations

import configparser
import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from bench.house import gauges
from marin.cli.running.dvc_lock import first_changed, frozen
from marin.execution.plan import step_config
from marin.execution.step import StepDefinition
from marin.pipeline.stages import PIPELINE
from marin.recipe.params import load_params
from marin.recipe.schema import FilesDataset, Initial, Lora, Mixture, Objective, Phase, Recipe, Tokenizer
from marin.record.events import STEPS

PROJECT = Path(__file__).resolve().parents[2]
DVC = yaml.safe_load((PROJECT / "dvc.yaml").read_text())
VARIABLES: dict[str, str] = DVC["vars"][0]

# One other valid value in every section of the recipe.
CHANGES: dict[str, dict[str, Any]] = {
    "dataset": {"seed": 7},
    "tokenizer": {"vocab_size": 300},
    "tokens": {"append_eos": False},
    "model": {"num_layers": 5},
    "optimizer": {"learning_rate": 0.1},
    "trainer": {"num_steps": 7, "packing": "isolated"},
    "arithmetic": {"threads": 4},
    "evaluation": {"max_sequences": 5},
    "export": {},
}
# Sections that are null by default.
GIVEN: dict[str, Any] = {
    "mixture": Mixture(weights={"a": 1.0}),
    "phase": Phase(first_step=3),
    "initial": Initial(name="a", model=f"sha256:{'1' * 64}", tokenizer=f"sha256:{'2' * 64}"),
    "lora": Lora(),
    "objective": Objective(),
    "exclude": ("a",),
}


CHATS = FilesDataset(globs=("a.jsonl",), chat=True, chat_reference="transformers")
KEPT: dict[str, Any] = {
    "tokenizer": Tokenizer(artifact=f"sha256:{'3' * 64}"),
    "phase": Phase(first_step=3, tokenizer=f"sha256:{'2' * 64}"),
    "initial": GIVEN["initial"],
}


def resolved(text: str) -> str:
    for name, value in VARIABLES.items():
        text = text.replace(f"${{{name}}}", value)
    return text


def outs(stage: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    return {resolved(path): flags for item in stage.get(kind, []) for path, flags in item.items()}


def test_the_stages_are_the_steps_in_order() -> None:
    names = tuple(step.name for step in PIPELINE.steps)
    assert tuple(DVC["stages"]) == names == STEPS


def test_the_first_stage_always_looks() -> None:
    """At texts that are no deps. No other has to: whichever step is made last ends the run, and receipts say what was made."""
    assert [name for name, stage in DVC["stages"].items() if stage.get("always_changed")] == [STEPS[0]]


@pytest.mark.skipif("grammar" in gauges.absent(), reason="params.yaml names the plugin grammar")
@pytest.mark.parametrize("step", PIPELINE.steps, ids=lambda step: step.name)
def test_dependencies_are_the_pointers_the_code_and_the_lock(step: StepDefinition) -> None:
    stage = DVC["stages"][step.name]
    assert stage["cmd"] == f"marin stage {step.name}"
    pointers, code = [f"artifacts/{name}.json" for name in step.inputs], step.code(load_params(PROJECT / "params.yaml"))
    assert sorted(map(resolved, stage["deps"])) == sorted([*pointers, *code, "requirements.lock"])
    assert all((PROJECT / path).exists() for path in code)


@pytest.mark.parametrize("step", PIPELINE.steps, ids=lambda step: step.name)
def test_parameters_are_exactly_the_sections_that_the_step_reads(
    step: StepDefinition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jsonl").write_text("{}\n")
    default = Recipe()
    read = set()
    for section, change in CHANGES.items():
        other = msgspec.structs.replace(getattr(default, section), **change)
        if step_config(step, msgspec.structs.replace(default, **{section: other})) != step_config(step, default):
            read.add(section)
    for section, value in GIVEN.items():
        if step_config(step, msgspec.structs.replace(default, **{section: value})) != step_config(step, default):
            read.add(section)
    for section, value in (("seed", 1), ("order", "swap-or-not")):
        if step_config(step, msgspec.structs.replace(default, **{section: value})) != step_config(step, default):
            read.add(section)
    # Of conversations more is read: their template, and the special tokens of the tokenizer that is kept.
    talking = msgspec.structs.replace(default, dataset=CHATS)
    if step_config(step, talking) != step_config(step, default):
        read.add("dataset")
    for section, value in KEPT.items():
        if step_config(step, msgspec.structs.replace(talking, **{section: value})) != step_config(step, talking):
            read.add(section)
    if "export" in step_config(step, default):
        read.add("export")  # has one value only, so that no change can show it
    assert {name.partition(".")[0] for name in DVC["stages"][step.name]["params"]} == read


@pytest.mark.parametrize("name", STEPS)
def test_outs_are_plain_files_and_only_the_receipt_is_deleted_before_a_run(name: str) -> None:
    stage = DVC["stages"][name]
    assert outs(stage, "outs") == {
        f"artifacts/{name}.json": {"cache": False, "persist": True},
        f".marin/receipts/{name}.json": {"cache": False},
    }
    for flags in [*outs(stage, "metrics").values(), *outs(stage, "plots").values()]:
        assert flags["cache"] is False and flags["persist"] is True


def test_dvc_calls_nobody_and_composes_with_hydra() -> None:
    config = configparser.ConfigParser()
    config.read_string("\n".join(line.strip() for line in (PROJECT / ".dvc" / "config").read_text().splitlines()))
    assert config["core"]["analytics"] == config["core"]["check_update"] == "false"
    assert config["hydra"]["enabled"] == "True"


def test_dvc_itself_reads_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    from dvc.repo import Repo

    with Repo(str(PROJECT)) as repo:
        stages = {stage.name: stage for stage in repo.index.stages}
    assert set(stages) == set(STEPS)
    assert stages["tokenizer"].desc == "Byte-level BPE with 2048 tokens, trained on the train split"
    assert not any(out.use_cache for stage in stages.values() for out in stage.outs)


LISTED = """vars:
  - out: artifacts
    receipts: kept

stages:
  corpus:
    cmd: marin stage corpus
    deps:
      - code.py
    params: [dataset, tokenizer.artifact]
    outs:
      - ${out}/corpus.json: &kept {cache: false, persist: true}
      - ${receipts}/corpus.json: *kept
"""
FILES = {"code.py": "1", "artifacts/corpus.json": "{}", "kept/corpus.json": "[]"}
PARAMS = "dataset: {seed: 0, share: 1.0e-08}\ntokenizer: {artifact: null, size: 3}\nmodel: 1\n"


def _locked(path: str, text: str) -> str:
    md5 = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    return f"    - path: {path}\n      hash: md5\n      md5: {md5}\n      size: {len(text)}\n"


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    """A project with one stage that is up to date, as DVC writes of it."""
    params = "        dataset:\n          seed: 0\n          share: 1e-08\n        tokenizer.artifact:\n"
    code, *outs = (_locked(path, text) for path, text in FILES.items())
    stage = f"    cmd: marin stage corpus\n    deps:\n{code}    params:\n      params.yaml:\n{params}    outs:\n{''.join(outs)}"
    lock = f"schema: '2.0'\nstages:\n  corpus:\n{stage}"
    for path, text in {**FILES, "dvc.yaml": LISTED, "dvc.lock": lock, "params.yaml": PARAMS}.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "old", "new", "told"),
    [
        ("params.yaml", "model: 1", "model: 2", ""),
        ("params.yaml", "size: 3", "size: 4", ""),
        ("dvc.yaml", "persist: true", "persist: false", ""),
        ("code.py", "1", "2", "code.py"),
        ("artifacts/corpus.json", "{}", "{ }", "artifacts/corpus.json"),
        ("kept/corpus.json", "[]", "[0]", "kept/corpus.json"),
        ("params.yaml", "seed: 0", "seed: 1", "the parameters of stage corpus"),
        ("params.yaml", "artifact: null", "artifact: 0", "the parameters of stage corpus"),
        ("params.yaml", "artifact: null, ", "", "the parameters of stage corpus"),
        ("params.yaml", "{seed", "[seed", "the parameters of stage corpus"),
        ("dvc.yaml", "[dataset, ", "[dataset, model, ", "the parameters of stage corpus"),
        ("dvc.yaml", "      - code.py\n", "      - code.py\n      - more.py\n", "the files of stage corpus"),
        ("dvc.yaml", "out: artifacts", "out: elsewhere", "the files of stage corpus"),
        ("dvc.yaml", "marin stage corpus", "marin stage corpus --force", "stage corpus"),
        ("dvc.lock", "  corpus:", "  other:", "stage corpus"),
    ],
)
def test_what_dvc_would_call_a_stage_for_is_named(locked: Path, path: str, old: str, new: str, told: str) -> None:
    assert first_changed(locked, ("corpus",)) == ""
    file = locked / path
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    assert first_changed(locked, ("corpus",)) == told


@pytest.mark.parametrize(("path", "told"), [("code.py", "code.py"), ("dvc.lock", "stage corpus"), ("dvc.yaml", "")])
def test_a_file_that_is_gone(locked: Path, path: str, told: str) -> None:
    (locked / path).unlink()
    assert first_changed(locked, ("corpus",)) == told


def test_a_stage_that_dvc_holds_is_found(tmp_path: Path) -> None:
    """As `dvc freeze` writes it, by DVC's own hand."""
    from dvc.utils.serialize import modify_yaml

    (tmp_path / "dvc.yaml").write_text((PROJECT / "dvc.yaml").read_text())
    assert frozen(tmp_path, STEPS) == [] == frozen(tmp_path / "none", STEPS)
    with modify_yaml(tmp_path / "dvc.yaml") as told:
        told["stages"]["tokens"]["frozen"] = True
        told["stages"]["export"]["frozen"] = True
    assert frozen(tmp_path, ("corpus", "tokens", "export")) == ["tokens", "export"]
    assert frozen(tmp_path, ("corpus", "tokenizer")) == []
