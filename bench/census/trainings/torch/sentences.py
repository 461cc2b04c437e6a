"""Sentence embeddings by sentence-transformers: a tiny BERT, pairs of neighbouring sentences, MultipleNegativesRankingLoss."""

import os

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    losses,
    models,
)
from transformers import BertConfig, BertModel, set_seed

from bench.census.journal import Journal, setting
from bench.census.trainings.torch.texts import tokenizer_of
from bench.census.trainings.torch.watching import Watching, arguments

want = setting()
world = int(os.environ.get("WORLD_SIZE", "1"))
sentences = [" ".join(part.split()) for part in want.text().replace(";", ".").split(".") if len(part.split()) > 3]
tokenizer = tokenizer_of(want.text())
set_seed(0)
shape: dict[str, float] = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 64,
}
shape |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # masks depend on the shape of a batch
base = os.path.join(want.folder, "base")
if os.environ.get("RANK", "0") == "0" or not os.path.exists(base):
    BertModel(BertConfig(vocab_size=len(tokenizer), hidden_size=64, **shape)).save_pretrained(base)
    tokenizer.save_pretrained(base)
words = models.Transformer(base, max_seq_length=48)
model = SentenceTransformer(modules=[words, models.Pooling(64)], device="cpu")
journal = Journal(want)
trainer = SentenceTransformerTrainer(
    model=model,
    args=SentenceTransformerTrainingArguments(**arguments(want, world)),
    train_dataset=Dataset.from_dict({"anchor": sentences[:-1], "positive": sentences[1:]}),
    loss=losses.MultipleNegativesRankingLoss(model),
    callbacks=[Watching(want, journal)],
)
trainer.train(resume_from_checkpoint=want.resume or None)
if want.steps == 8:
    journal.evaluation(model.encode(sentences[:32], batch_size=want.evaluation, show_progress_bar=False)[:, :8])
