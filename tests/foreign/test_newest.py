"""Exports in the newest transformers, tokenizers and safetensors, which Levanter's ceilings keep out of the lock.

They lie in an environment of their own with torch (beside/newest.txt; `make foreign` installs it by
.ci/references); without it these skip.
"""

import json
import shutil
import tarfile
from pathlib import Path

import haliax as hax
import jax.random as jrandom
import numpy as np
import pytest
from haliax import Axis
from levanter.layers.attention import AttentionMask
from programs import ask
from tokenizers import Tokenizer

from ledger import LogReader, PosixStorage, Store, VerifierKey
from marin.recipe.schema import Recipe
from marin.training.export import write_model
from marin.training.model import model_config
from tests.e2e.models.test_export_transformers import VOCAB, every_architecture

PROJECT = Path(__file__).resolve().parents[2]
KEPT, PYTHON = PROJECT / "tests/golden/exact.tar.gz", PROJECT / "build/newest/bin/python"
pytestmark = pytest.mark.skipif(
    not PYTHON.is_file(), reason="no build/newest: `make foreign` installs it where uv and a Python 3.11 are"
)
OFFLINE = {"HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
LOGITS = """
import json, sys, numpy as np, torch
from transformers import AutoModelForCausalLM
tokens, out, *folders = sys.argv[1:]
said = []
for number, folder in enumerate(folders):
    try:
        model, told = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
        said.append({name: sorted(map(str, found)) for name, found in told.items() if found})
        with torch.no_grad():
            logits = model.eval()(torch.from_numpy(np.load(tokens)).long()).logits.numpy()
        if number == 0:
            np.save(out, logits)
    except Exception as error:
        said.append({type(error).__name__: str(error)[:200]})
print(json.dumps(said))
"""
IDS = """
import json, sys
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
print(json.dumps([tokenizer(text, add_special_tokens=False)["input_ids"] for text in json.load(open(sys.argv[2]))]))
"""
TEXTS = ["The farmer sees the cats.", "  two  spaces\n", "naïve café, 東京", "<|endoftext|>"]


@pytest.fixture(scope="module")
def versions():
    names = ("transformers", "tokenizers", "safetensors")
    script = f"import importlib.metadata as m; print(' '.join(n + ' ' + m.version(n) for n in {names}))"
    status, said = ask(PYTHON, "-c", script)
    assert status == 0, said
    return said.strip()


@every_architecture
def test_a_model_has_the_same_logits(model, tmp_path, judge, versions):
    judged = judge("the newest transformers", versions)
    built = model_config(model).build(Axis("vocab", VOCAB), key=jrandom.PRNGKey(3))
    folder, given, out = tmp_path / "model", tmp_path / "tokens.npy", tmp_path / "logits.npy"
    folder.mkdir()
    write_model(folder, built, Recipe(model=model), VOCAB)
    tokens = np.random.default_rng(1).integers(0, VOCAB, (2, model.seq_len), dtype=np.int32)
    np.save(given, tokens)
    mine = np.asarray(built(hax.named(tokens, ("batch", "position")), AttentionMask.causal()).array)
    others = [cut(folder), renamed(folder)]
    status, said = ask(PYTHON, "-c", LOGITS, given, out, folder, *others, env=OFFLINE, seconds=900)
    assert status == 0, said
    first, *wrong = json.loads(said.splitlines()[-1])
    assert first == {}, "every tensor has its place"
    theirs = np.load(out)
    np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=2e-4)
    assert (mine.argmax(-1) == theirs.argmax(-1)).all()
    kind = f"{model.architecture}{', tied' if model.tie_word_embeddings else ''}"
    judged.accepts(f"an exported {kind}: the same logits and the same best tokens")
    assert all(wrong), wrong
    judged.refuses(f"of {kind} weights cut, and with another name of a tensor")


def another(folder, name, change):
    """A copy with other weights."""
    copy = Path(shutil.copytree(folder, folder.with_name(name)))
    weights = copy / "model.safetensors"
    weights.write_bytes(change(weights.read_bytes()))
    return copy


def cut(folder):
    return another(folder, "cut", lambda whole: whole[:-4])


def renamed(folder):
    def change(whole):
        size = int.from_bytes(whole[:8], "little")
        head = json.loads(whole[8 : 8 + size])
        name = max(head.keys() - {"__metadata__"})
        head[name + ".other"] = head.pop(name)
        data = json.dumps(head).encode()
        return len(data).to_bytes(8, "little") + data + whole[8 + size :]

    return another(folder, "renamed", change)


def test_the_folder_of_a_run_that_is_kept_has_the_same_ids(tmp_path, judge, versions):
    judged = judge("the newest transformers", versions)
    with tarfile.open(KEPT) as archive:
        archive.extractall(tmp_path, filter="data")
    reader = LogReader(
        PosixStorage(tmp_path / "exact"), [VerifierKey.parse((tmp_path / "exact/vkey").read_text().strip())]
    )
    (exported,) = [event for _, event in reader.events() if event.type == "model.exported/v1"]
    folder, given = tmp_path / "model", tmp_path / "texts.json"
    Store(PosixStorage(tmp_path / "exact")).checkout(exported.body["output"]["artifact"], folder)
    given.write_text(json.dumps(TEXTS))
    status, said = ask(PYTHON, "-c", IDS, folder, given, env=OFFLINE, seconds=900)
    assert status == 0, said
    own = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert json.loads(said.splitlines()[-1]) == [own.encode(text, add_special_tokens=False).ids for text in TEXTS]
    judged.accepts("the tokenizer of a recorded run's folder: the same ids")
    file = folder / "tokenizer.json"
    whole = file.read_text()
    file.chmod(0o644)
    file.write_text(whole[: len(whole) // 2])
    status, said = ask(PYTHON, "-c", IDS, folder, given, env=OFFLINE, seconds=900)
    assert status != 0, said
    judged.refuses("a tokenizer cut")
