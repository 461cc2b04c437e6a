"""A tiny GPT-2 by Hugging Face's Trainer, as its course has it: dropout, linear decay, AdamW."""

import os

from transformers import Trainer, TrainingArguments, default_data_collator

from bench.census.journal import Journal, setting
from bench.census.trainings.torch.texts import rows_of, tiny_gpt2, tokenizer_of
from bench.census.trainings.torch.watching import Watching, arguments, evaluated

want = setting()
world = int(os.environ.get("WORLD_SIZE", "1"))
tokenizer = tokenizer_of(want.text())
rows = rows_of(tokenizer, want.text())
journal = Journal(want)
trainer = Trainer(
    model=tiny_gpt2(len(tokenizer)),
    args=TrainingArguments(**arguments(want, world)),
    train_dataset=rows,
    data_collator=default_data_collator,
    callbacks=[Watching(want, journal)],
)
trainer.train(resume_from_checkpoint=want.resume or None)
if want.steps == 8:
    journal.evaluation(evaluated(trainer, rows[:32], want.evaluation))
