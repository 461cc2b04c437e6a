#!/usr/bin/env bash
# transformers replaces the normalizer and the pre-tokenizer of a tokenizer.json where the class builds its own pipeline (Qwen2Tokenizer,
# GPT2Tokenizer, ...), in silence, also in a folder that its own save_pretrained wrote. A tokenizer that was changed, saved and loaded
# gives other ids than before, and than the tokenizers library gives for the very same file.
#
#   bash findings/transformers-tokenizer-rebuilt.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, one to three minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-5.12.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/transformers-tokenizer-rebuilt.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "transformers==$version" "tokenizers==0.22.2" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
import tempfile
from importlib.metadata import version

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, GPT2Tokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer

print(f"transformers {version('transformers')}, tokenizers {version('tokenizers')}, Python {sys.version.split()[0]}")
TEXT = "Ab 12"
vocabulary = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
vocabulary["12"] = len(vocabulary)
merges = [("1", "2")]


def plain():
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE(vocab=dict(vocabulary), merges=merges)))


makers = {
    "GPT2Tokenizer": lambda: GPT2Tokenizer(vocab=dict(vocabulary), merges=merges),
    "Qwen2Tokenizer": lambda: Qwen2Tokenizer(vocab=dict(vocabulary), merges=merges),
    "PreTrainedTokenizerFast": plain,
}
changed = []
for name, make in makers.items():
    tokenizer = make()
    core = tokenizer.backend_tokenizer
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        of_file = Tokenizer.from_file(f"{folder}/tokenizer.json").encode(TEXT, add_special_tokens=False).tokens
        loaded = AutoTokenizer.from_pretrained(folder)
    before, after = tokenizer.tokenize(TEXT), loaded.tokenize(TEXT)
    print(f"{name}, {TEXT!r}, lower case and single digits")
    print(f"  before saving      {before}")
    print(f"  tokenizers, file   {of_file}")
    print(f"  AutoTokenizer      {after}")
    if before != of_file:
        changed.append(f"{name}: the file holds something else than the tokenizer did")
    if (after == of_file) != (name == "PreTrainedTokenizerFast"):
        changed.append(f"{name}: AutoTokenizer gives {after}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
