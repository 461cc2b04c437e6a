#!/usr/bin/env bash
# The normalizer that tokenizers makes of a sentencepiece model (Precompiled) gives other text than sentencepiece for the same table: it
# looks at one grapheme at a time, so Hangul in parts is not composed, and half-width katakana keep their voice marks apart. Korean and
# Japanese text in such forms has other tokens in training and in serving. Upstream: huggingface/tokenizers#2116 and #2334 (open).
#
#   bash findings/tokenizers-precompiled-normalizer.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.22.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/tokenizers-precompiled-normalizer.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "tokenizers==$version" "sentencepiece==0.2.3" "protobuf==7.36.2" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import io
import sys
import unicodedata
from importlib.metadata import version

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import normalizers

print(f"tokenizers {version('tokenizers')}, sentencepiece {version('sentencepiece')}, Python {sys.version.split()[0]}")
file = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(["a b c d"] * 10), model_writer=file, vocab_size=8, normalization_rule_name="nfkc", minloglevel=2
)
model = sentencepiece_model_pb2.ModelProto()
model.ParseFromString(file.getvalue())
precompiled = normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap)
own = sentencepiece.SentencePieceNormalizer(
    rule_name="nfkc", add_dummy_prefix=False, remove_extra_whitespaces=False, escape_whitespaces=False
)
CASES = {  # text, whether the two agree
    "e and an acute accent": ("e\u0301", True),
    "full-width A": ("\uff21", True),
    "Hangul ga in two parts": ("\u1100\u1161", False),
    "half-width katakana ga": ("\uff76\uff9e", False),
}
changed = []
for name, (text, expected) in CASES.items():
    outputs = own.normalize(text), precompiled.normalize_str(text)
    nfkc = unicodedata.normalize("NFKC", text)
    print(f"  {name + ':':24}sentencepiece {ascii(outputs[0])}, tokenizers {ascii(outputs[1])}, NFKC {ascii(nfkc)}")
    if (outputs[0] == outputs[1]) != expected or outputs[0] != nfkc:
        changed.append(f"{name}: {outputs}")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
