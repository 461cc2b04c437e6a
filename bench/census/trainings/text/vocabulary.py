"""A vocabulary by Hugging Face's tokenizers: the argument is bpe, unigram or wordpiece. One step; the loss is tokens per text."""

import json
import sys
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from bench.census.journal import Journal, setting

UNKNOWN = "[UNK]"
want = setting()
journal = Journal(want)
lines = want.text().splitlines()
match sys.argv[1]:
    case "bpe":
        tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
        trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=[UNKNOWN], show_progress=False)
    case "unigram":
        tokenizer = Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(
            vocab_size=600, special_tokens=[UNKNOWN], unk_token=UNKNOWN, show_progress=False
        )
    case _:
        tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
        trainer = trainers.WordPieceTrainer(vocab_size=600, special_tokens=[UNKNOWN], show_progress=False)
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
size = len(lines) // want.cut + 1
tokenizer.train_from_iterator([lines[start : start + size] for start in range(0, len(lines), size)], trainer)
model = json.loads(tokenizer.to_str())["model"]
vocabulary = model["vocab"]
words = [pair[0] for pair in vocabulary] if isinstance(vocabulary, list) else sorted(vocabulary, key=vocabulary.get)
state: dict[str, Any] = {"words": "\n".join(words), "merges": json.dumps(model.get("merges", []))}
if isinstance(vocabulary, list):
    state["scores"] = np.array([pair[1] for pair in vocabulary])
encoded = [
    len(each.ids)
    for start in range(0, len(lines), want.evaluation)
    for each in tokenizer.encode_batch(lines[start : start + want.evaluation])
]
journal.step(0, sum(encoded), state)
journal.evaluation(encoded)
