"""A callback of Hugging Face's trainer that writes the journal, and ends training where the census wants it to end."""

from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from bench.census.journal import Journal, Setting


class Watching(TrainerCallback):
    def __init__(self, want: Setting, journal: Journal) -> None:
        self.want, self.journal = want, journal

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **given: Any
    ) -> None:
        if logs and "loss" in logs:
            model = {name: value for name, value in given["model"].state_dict().items() if "lm_head" not in name}
            self.journal.step(state.global_step - 1, logs["loss"], model)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        if state.global_step == self.want.steps and self.want.steps < args.max_steps:
            control.should_save = control.should_training_stop = True


def arguments(want: Setting, world: int) -> dict[str, Any]:
    """Eight steps of 16 rows, whatever the number of processes and of microbatches."""
    return {
        "output_dir": want.checkpoint,
        "max_steps": 8,
        "per_device_train_batch_size": 16 // world // want.cut,
        "gradient_accumulation_steps": want.cut,
        "per_device_eval_batch_size": want.evaluation,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "seed": 0,
    }


def evaluated(trainer: Trainer, rows: list[dict[str, Any]], size: int) -> list[float]:
    """The loss of each row, in batches."""
    losses: list[float] = []
    trainer.model.eval()
    for start in range(0, len(rows), size):
        ids = torch.tensor([row["input_ids"] for row in rows[start : start + size]])
        with torch.no_grad():
            logits = trainer.model(input_ids=ids).logits[:, :-1]
        losses += (
            torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none").mean(1).tolist()
        )
    return losses
