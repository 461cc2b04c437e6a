"""A training that begins with a model which was made elsewhere: recorded, and made again by a verifier.

The folder is one of ours with other ends of text and numbers of 16 bits, so that nothing of our own tokenizers holds for it.
"""

# Taken by their commands: marin.plugins.evaluation.

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.e2e.conftest import Project

pytestmark = pytest.mark.long(together="from a folder", seconds=100)

BEGIN, END = 6, 7


def exported(project: Project) -> Path:
    """What `marin export --hf` wrote, in half precision, with the ends of text of another tokenizer."""
    done = project.marin("export", "latest", "--hf", "elsewhere")
    assert done.returncode == 0, done.stderr
    place = project.folder / "elsewhere"
    tensors = {name: value.astype(np.float16) for name, value in load_file(place / "model.safetensors").items()}
    save_file(tensors, place / "model.safetensors")
    config = json.loads((place / "config.json").read_bytes())
    (place / "config.json").write_text(json.dumps(config | {"bos_token_id": BEGIN, "eos_token_id": END}), "utf-8")
    return place


@pytest.fixture
def folder(project: Project) -> Path:
    return exported(project)


@dataclass(frozen=True)
class Continued:
    """A training that began with the folder ``elsewhere`` of its project, and what `marin train` said of it."""

    project: Project
    told: dict[str, Any]

    @property
    def folder(self) -> Path:
        return self.project.folder / "elsewhere"


@pytest.fixture(scope="module")
def once(trained: Project, tmp_path_factory: pytest.TempPathFactory) -> Continued:
    project = trained.copy(tmp_path_factory.mktemp("continued"))
    exported(project)
    return Continued(project, go(project, "--from", "elsewhere", "trainer.num_steps=6"))


@pytest.fixture
def continued(once: Continued, tmp_path: Path) -> Continued:
    """A copy of the one training of this file, to be damaged."""
    return replace(once, project=once.project.copy(tmp_path))


def go(project: Project, *arguments: str) -> dict[str, Any]:
    done = project.marin("-q", "train", "--config-json", "params.yaml", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def shown(project: Project, run: str) -> Any:
    done = project.marin("show", run, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_its_numbers_are_recorded_as_those_of_the_state_before_the_first_step(continued: Continued) -> None:
    """A folder has no history, so what `marin eval FOLDER` says is recorded nowhere; a training that begins with it has one."""
    project, run = continued.project, continued.told["run"]
    place = project.folder / "data_of_babylm" / "supplement_filtered"
    place.mkdir(parents=True)
    rows = [{"sentence_good": f"the dog {word}s", "sentence_bad": f"the dog {word}"} for word in ("run", "sit", "wait")]
    (place / "agreement.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    told = []
    for subject in (("elsewhere",), (run, "--step", "0"), (run,)):
        done = project.marin("eval", *subject, "--babylm", "data_of_babylm", "--json")
        assert done.returncode == 0, done.stderr
        told.append(json.loads(done.stdout))
    of_folder, of_run, after = told
    assert of_run["step"] == 0 and of_run["event"] is not None
    assert (of_run["results"], of_run["samples"]) == (of_folder["results"], of_folder["samples"])
    assert after["samples"] != of_run["samples"] and after["state"] != of_run["state"]
    status, report = project.verify("--only", "ledger,evaluation")
    assert (status, report["verdicts"]["evaluation"], report["evaluation"]["requests_answered"]) == (0, "PASS", 12)


def test_a_model_from_elsewhere_goes_on_and_all_of_it_is_verified(continued: Continued) -> None:
    project, folder, told = continued.project, continued.folder, continued.told
    executed = dict.fromkeys(("tokenizer", "tokens", "train", "evaluate", "export"), "executed")
    assert told["steps"] == {"corpus": "cached", **executed}, "all but the texts is another model's"
    done = project.marin("log", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    started = next(
        one["body"] for one in events if one["type"] == "run.started/v1" and one["body"]["run"] == told["run"]
    )
    initial = started["recipe"]["initial"]
    assert initial["name"] == "folder elsewhere" and started["recipe"]["tokens"]["end_of_text"] == END
    assert started["recipe"]["tokens"]["begin_of_text"] == BEGIN
    losses = [one["body"]["losses"][0] for one in events if one["type"].startswith("train.segment")]
    assert len(losses) == 4, "two segments of the model, and two of the training that it began"
    assert float.fromhex(losses[-2]) < float.fromhex(losses[0]), "it begins where the other model ended"
    status, report = project.verify()
    assert (status, set(report["verdicts"].values())) == (0, {"PASS"}), report
    assert any("taken from folder elsewhere" in str(claim) for claim in report["claimed"]), report["claimed"]
    status, report = project.verify("--only", "training", "--sample", "1")
    assert (status, report["verdicts"]["training"]) == (4, "PARTIAL"), report
    done = project.marin("export", told["run"], "--hf", "again")
    assert done.returncode == 0, done.stderr
    config = json.loads((project.folder / "again" / "config.json").read_bytes())
    assert (config["bos_token_id"], config["eos_token_id"]) == (BEGIN, END)
    files = ("tokenizer.json", "tokenizer_config.json")
    assert all((folder / name).read_bytes() == (project.folder / "again" / name).read_bytes() for name in files)
    for word, said in (
        ("model.num_layers=3", "leave model.num_layers out"),
        ("model=1m", "leave model out"),
        ("model.seq_len=64", "a context that this model does not have"),
    ):
        done = project.marin("train", "--from", "elsewhere", "--config-json", "params.yaml", word)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_another_model_in_the_store_is_found(continued: Continued) -> None:
    """Who holds the store exchanges a weight of the model with which the training began."""
    project = continued.project
    digest = hashlib.sha256((continued.folder / "model.safetensors").read_bytes()).hexdigest()
    blob = project.root / "store" / "blobs" / "sha256" / digest[:2] / digest[2:]
    content = bytearray(blob.read_bytes())
    content[-1] ^= 1
    blob.chmod(0o600)
    blob.write_bytes(content)
    status, report = project.verify("--only", "artifacts,training", "--fresh")
    assert report["verdicts"]["artifacts"] == "FAIL", report
    assert status == 1 and report["verdicts"]["training"] in ("FAIL", "UNAVAILABLE"), report


def test_a_tokenizer_from_elsewhere_is_taken_as_it_is_and_verified(project: Project) -> None:
    """In GPT-2's two files, with the end of text last, as GPT-2 has it."""
    before = go(project)
    done = project.marin("export", before["run"], "--hf", "own")
    assert done.returncode == 0, done.stderr
    model = json.loads((project.folder / "own" / "tokenizer.json").read_bytes())["model"]
    words = [word for word, _ in sorted(model["vocab"].items(), key=lambda item: item[1]) if word != "<|endoftext|>"]
    folder = project.folder / "gpt2"
    folder.mkdir()
    vocabulary = {word: number for number, word in enumerate([*words, "<|endoftext|>"])}
    (folder / "encoder.json").write_text(json.dumps(vocabulary), "utf-8")
    (folder / "vocab.bpe").write_text(
        "#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in model["merges"]), "utf-8"
    )
    told = go(project, "--tokenizer", "gpt2")
    done = project.marin("log", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (recipe,) = [
        one["body"]["recipe"] for one in events if one["type"] == "run.started/v1" and one["body"]["run"] == told["run"]
    ]
    assert recipe["tokenizer"]["taken_from"] == "folder gpt2" and recipe["tokens"]["end_of_text"] == len(words)
    shutil.rmtree(folder)
    status, report = project.verify()
    assert (status, set(report["verdicts"].values())) == (0, {"PASS"}), report
    assert any("was taken from folder gpt2" in str(claim) for claim in report["claimed"]), report["claimed"]
    done = project.marin("export", told["run"], "--hf", "out")
    assert done.returncode == 0, done.stderr
    config = json.loads((project.folder / "out" / "config.json").read_bytes())
    assert config["eos_token_id"] == len(words) and config["vocab_size"] == len(vocabulary)
    done = project.marin("train", "--config-json", "params.yaml", "--continue", told["run"], "--tokenizer", "own")
    assert done.returncode == 2 and "keeps its tokenizer" in done.stderr


def test_a_wordpiece_tokenizer_is_taken_and_verified(project: Project) -> None:
    """Its decoding gives no text back; words are counted in the text itself, and a verifier counts them too."""
    folder = project.folder / "bert"
    folder.mkdir()
    letters = [chr(sign) for sign in range(ord("a"), ord("z") + 1)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *".,!?'-", *letters, *(f"##{one}" for one in letters)]
    (folder / "vocab.txt").write_text("".join(f"{one}\n" for one in tokens), "utf-8")
    config = {"tokenizer_class": "BertTokenizer", "bos_token": "[CLS]", "eos_token": "[SEP]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    told = go(project, "--tokenizer", "bert", "trainer.states_at_words=[20]")
    shutil.rmtree(folder)
    status, report = project.verify()
    assert (status, set(report["verdicts"].values())) == (0, {"PASS"}), report
    assert any("was taken from folder bert" in str(claim) for claim in report["claimed"]), report["claimed"]
    done = project.marin("show", told["run"], "--json")
    assert json.loads(done.stdout)["recipe"]["tokens"]["end_of_text"] == tokens.index("[SEP]"), done.stdout


def test_adapters_of_a_model_from_elsewhere_are_trained_verified_and_merged(project: Project, folder: Path) -> None:
    done = project.marin("train", "--config-json", "params.yaml", "lora.rank=2")
    assert (done.returncode, "adapters without a model that they adapt" in done.stderr) == (2, True), done.stderr
    told = go(project, "--from", "elsewhere", "trainer.num_steps=6", "lora.rank=2", "optimizer.learning_rate=0.05")
    status, report = project.verify()
    assert (status, set(report["verdicts"].values())) == (0, {"PASS"}), report
    done = project.marin("export", told["run"], "--hf", "tuned")
    assert done.returncode == 0, done.stderr
    place = project.folder / "tuned"
    base, whole, own = (
        load_file(file)
        for file in (
            folder / "model.safetensors",
            place / "model.safetensors",
            place / "adapters" / "adapter_model.safetensors",
        )
    )
    assert base.keys() == whole.keys() and len(own) == 2 * 7 * 2, "two of each of seven matrices of two layers"
    for name, value in base.items():
        stem = "base_model.model." + name.removesuffix(".weight")
        if f"{stem}.lora_A.weight" not in own:
            assert np.array_equal(value.astype(np.float32), whole[name]), name
            continue
        product = own[f"{stem}.lora_B.weight"].astype(np.float64) @ own[f"{stem}.lora_A.weight"] * 8.0 / 2
        assert np.abs(product).max() > 0, name
        np.testing.assert_allclose(value + product, whole[name], rtol=1e-5, atol=1e-6, err_msg=name)
