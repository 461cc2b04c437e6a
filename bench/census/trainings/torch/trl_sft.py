"""Supervised fine-tuning by TRL: paragraphs as text, padded to the longest of a batch."""

import os

import torch
from datasets import Dataset
from torch.nn import functional as F
from trl import SFTConfig, SFTTrainer

from bench.census.journal import Journal, setting
from bench.census.trainings.torch.texts import tiny_gpt2, tokenizer_of
from bench.census.trainings.torch.watching import Watching, arguments

want = setting()
world = int(os.environ.get("WORLD_SIZE", "1"))
tokenizer = tokenizer_of(want.text())
sentences = [" ".join(part.split()) for part in want.text().replace(";", ".").split(".") if len(part.split()) > 3]
model = tiny_gpt2(len(tokenizer))
for part in model.modules():  # without dropout, whose masks depend on the shape of a batch
    if isinstance(part, torch.nn.Dropout):
        part.p = 0.0
journal = Journal(want)
trainer = SFTTrainer(
    model=model,
    args=SFTConfig(**arguments(want, world), max_length=48, dataset_text_field="text"),
    train_dataset=Dataset.from_dict({"text": sentences}),
    processing_class=tokenizer,
    callbacks=[Watching(want, journal)],
)
trainer.train(resume_from_checkpoint=want.resume or None)
if want.steps == 8:
    losses = []
    trainer.model.eval()
    for start in range(0, 32, want.evaluation):  # padded to the longest of the batch, as pipelines do it
        rows = tokenizer(
            sentences[start : start + want.evaluation],
            return_tensors="pt",
            padding=True,
            truncation=True,
            max_length=48,
        )
        with torch.no_grad():
            logits = trainer.model(**rows).logits[:, :-1]
        mask = rows["attention_mask"][:, 1:]
        each = F.cross_entropy(logits.transpose(1, 2), rows["input_ids"][:, 1:], reduction="none")
        losses += ((each * mask).sum(1) / mask.sum(1)).tolist()
    journal.evaluation(losses)
