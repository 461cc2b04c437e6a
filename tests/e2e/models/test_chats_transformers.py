"""An exported folder is asked in transformers as the run is asked here: the same prompt's tokens, the same answer's tokens.

transformers generates with torch, which is not among our dependencies: see test_export_transformers.py.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.random as jrandom
import pytest
from haliax import Axis
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from marin.data.borrowed.chats import special_tokens
from marin.data.borrowed.exported import write_template
from marin.data.template import template_of
from marin.data.tokenizer import parse_tokenizer
from marin.evaluation.scoring import Scorer
from marin.evaluation.subject import Subject
from marin.plugins.serve.answers import question
from marin.recipe.schema import FilesDataset, Model, Recipe
from marin.training.export import write_model
from marin.training.model import model_config

PROGRAM = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, asked, out = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
found = []
for messages in json.load(open(asked)):
    given = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    said = model.generate(**given, do_sample=False, max_new_tokens=24, pad_token_id=0)[0].tolist()
    place = given["input_ids"].shape[1]
    found.append([said[:place], said[place:]])
json.dump(found, open(out, "w"))
"""
CHATML = (
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{% else %}"
    "{{ m.content + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def torch_python() -> str:
    """An interpreter that has torch."""
    if named := os.environ.get("MARIN_TORCH_PYTHON"):
        return named
    if importlib.util.find_spec("torch") is not None:
        return sys.executable
    pytest.skip("torch is not here: set MARIN_TORCH_PYTHON to a Python that has torch and transformers")


def test_a_chat_is_answered_in_equal_tokens(tmp_path: Path) -> None:
    python = torch_python()
    library = Tokenizer(models.BPE())
    library.pre_tokenizer, library.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=280, special_tokens=marks, initial_alphabet=alphabet, show_progress=False)
    library.train_from_iterator(["what is it? it is so. user assistant system"], trainer)
    folder = tmp_path / "model"
    folder.mkdir()
    library.save(str(folder / "tokenizer.json"))
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    data = FilesDataset(globs=("x.jsonl",), chat=True, chat_reference="transformers", chat_template=CHATML)
    sizes = Model(hidden_dim=32, intermediate_dim=48, num_layers=2, num_heads=4, num_kv_heads=2, seq_len=128)
    recipe = Recipe(dataset=data, model=sizes)
    vocabulary = library.get_vocab_size()
    built = model_config(sizes).build(Axis("vocab", vocabulary), key=jrandom.PRNGKey(3))
    closing = write_template(folder, recipe)
    write_model(folder, built, recipe, vocabulary, closing)
    assert json.loads((folder / "generation_config.json").read_bytes())["eos_token_id"] == [0, 2]
    template, special = template_of(data, special_tokens(folder)), special_tokens(folder)
    kept = parse_tokenizer(library.to_str().encode(), where="here")
    subject = Subject("r", recipe, built, kept, f"sha256:{'5' * 64}", 0, f"sha256:{'6' * 64}", template, special)
    asked: list[list[dict[str, Any]]] = [[{"role": "user", "content": f"what is {number}? ü"}] for number in range(4)]
    asked.append(
        [*asked[0], {"role": "assistant", "content": "it is so."}, {"role": "user", "content": " sure <|im_end|>? "}]
    )
    ours = []
    for messages in asked:
        ids = subject.encode(template.render(messages))
        given = question(subject, [ids], n=1, limit=24, temperature=0.0, seed=0, stops=template.stops, chat=True)
        (new,) = Scorer(built, recipe).generate([one.prompt for one in given.asked()], 0)
        ours.append([ids, list(new)])
    (tmp_path / "asked.json").write_text(json.dumps(asked))
    subprocess.run(
        [python, "-c", PROGRAM, folder, tmp_path / "asked.json", tmp_path / "out.json"],
        check=True,
        capture_output=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        timeout=300,
    )
    assert json.loads((tmp_path / "out.json").read_bytes()) == ours
