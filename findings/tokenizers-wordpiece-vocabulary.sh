#!/usr/bin/env bash
# Training a WordPiece vocabulary with tokenizers is not reproducible: the same text, settings and version give another set of words in
# each process, with one thread too, and there is no seed to set. Byte-level BPE from the same text gives one vocabulary always.
#
#   bash findings/tokenizers-wordpiece-vocabulary.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.22.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/tokenizers-wordpiece-vocabulary.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "tokenizers==$version" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import hashlib
import json
import os
import subprocess
import sys
from importlib.metadata import version

TRAIN = """
import json, random, sys
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

draw = random.Random(0)
text = ["".join(draw.choice("abcdefgh") for _ in range(draw.randint(2, 8))) for _ in range(400)]
if sys.argv[1] == "WordPiece":
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]"], show_progress=False)
else:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=440, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
tokenizer.train_from_iterator(text, trainer)
vocabulary = tokenizer.get_vocab()
print(json.dumps([sorted(vocabulary), sorted(vocabulary.items()), tokenizer.encode("abcdefgh").ids]))
"""
RUNS = 8

print(f"tokenizers {version('tokenizers')}, Python {sys.version.split()[0]}")
changed = []
for model in ("WordPiece", "byte-level BPE"):
    one_thread = {**os.environ, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", TRAIN, model]
    outputs = [json.loads(subprocess.run(command, env=one_thread, check=True, capture_output=True).stdout) for _ in range(RUNS)]
    words, ids, encoded = ({hashlib.sha256(json.dumps(output[k]).encode()).hexdigest() for output in outputs} for k in range(3))
    common = set.intersection(*(set(output[0]) for output in outputs))
    print(f"{model}, {RUNS} processes of one thread, {len(outputs[0][0])} tokens wanted")
    print(f"  different sets of tokens {len(words)}, tokens that all have {len(common)}, different numberings {len(ids)}")
    print(f"  ids of 'abcdefgh' in the first two: {outputs[0][2]}, {outputs[1][2]}")
    if (len(ids) > 1 and len(words) > 1) != (model == "WordPiece"):
        changed.append(f"{model}: {len(words)} sets of tokens, {len(ids)} numberings")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
