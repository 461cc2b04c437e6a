#!/usr/bin/env bash
# transformers finds the assistant's tokens (apply_chat_template with return_assistant_tokens_mask) by the first and the last character of
# each {% generation %} span. Where the tokenizer drops white space and a span begins with a space, the mask ends there for the rest of
# the chat: no later answer is learned. Where a span ends with a space, everything to the end of the chat counts as the assistant's:
# the model learns the user's turns. Neither raises or warns.
#
#   bash findings/transformers-assistant-mask.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, one to three minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-5.12.1}
folder=$(mktemp -d "${TMPDIR:-/tmp}/transformers-assistant-mask.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "transformers==$version" "tokenizers==0.22.2" "jinja2==3.1.6" >&2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

print(f"transformers {version('transformers')}, tokenizers {version('tokenizers')}, Python {sys.version.split()[0]}")
vocabulary = {word: i for i, word in enumerate("? User Assistant hello hi what now fine yes bye".split())}
core = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="?")

USER = "{% for m in messages %}{% if m.role == 'user' %}User {{ m.content }} {% else %}Assistant"
END = "{% endif %}{% endfor %}"
ANSWERS = {
    "span without a space": " {% generation %}{{ m.content }}{% endgeneration %} ",
    "span begins with one": "{% generation %} {{ m.content }}{% endgeneration %} ",
    "span ends with one": " {% generation %}{{ m.content }} {% endgeneration %}",
}
EXPECTED = {
    "span without a space": "hi fine yes",
    "span begins with one": "",
    "span ends with one": "hi User what now Assistant fine yes User bye",
}
turns = [("user", "hello"), ("assistant", "hi"), ("user", "what now"), ("assistant", "fine yes"), ("user", "bye")]
chat = [{"role": role, "content": content} for role, content in turns]

changed, ids = [], set()
for name, answer in ANSWERS.items():
    out = tokenizer.apply_chat_template(
        chat, chat_template=USER + answer + END, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    ids.add(tuple(out["input_ids"]))
    tokens = tokenizer.convert_ids_to_tokens(out["input_ids"])
    learned = " ".join(token for token, mask in zip(tokens, out["assistant_masks"], strict=True) if mask)
    print(f"{name + ':':22} the assistant's tokens are {learned!r}")
    if learned != EXPECTED[name]:
        changed.append(f"{name}: {learned!r} instead of {EXPECTED[name]!r}")
print(f"the token ids of the three are {'equal' if len(ids) == 1 else 'different'}: {' '.join(tokens)}")
if len(ids) != 1:
    changed.append("the three templates give other token ids")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
