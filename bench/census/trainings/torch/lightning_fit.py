"""A model of characters by Lightning: a LightningModule, a DataLoader that shuffles, `Trainer.fit`."""

from typing import Any

import lightning
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from bench.census.journal import Journal, setting

CONTEXT = 32
want = setting()
journal = Journal(want)
lightning.seed_everything(0, verbose=False)


class Characters(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.dropout = nn.Embedding(128, 64), nn.Dropout(0.1)
        self.recurrent, self.head = nn.GRU(64, 128, batch_first=True), nn.Linear(128, 128)
        self.batches: list[torch.Tensor] = []
        self.losses: list[torch.Tensor] = []

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.dropout(self.recurrent(self.embed(ids))[0]))

    def training_step(self, batch: list[torch.Tensor], place: int) -> torch.Tensor:
        (rows,) = batch
        loss = F.cross_entropy(self(rows[:, :-1]).transpose(1, 2), rows[:, 1:])
        self.batches.append(rows)
        self.losses.append(loss.detach())
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Any, place: int) -> None:
        if len(self.losses) == want.cut:
            loss = self.all_gather(torch.stack(self.losses)).mean()
            rows = self.all_gather(torch.cat(self.batches))
            journal.step(self.global_step - 1, loss, self.state_dict(), rows.reshape(16, -1))
            self.losses, self.batches = [], []

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


text = torch.tensor(list(want.text().encode("ascii")))
rows = text[: len(text) // CONTEXT * CONTEXT].view(-1, CONTEXT)
loader = DataLoader(TensorDataset(rows), batch_size=16 // want.cut // want.devices, shuffle=True)
model = Characters()
trainer = lightning.Trainer(
    max_steps=want.steps,
    accelerator="cpu",
    devices=want.devices,
    strategy="ddp" if want.devices > 1 else "auto",
    accumulate_grad_batches=want.cut,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, loader, ckpt_path=want.checkpoint if want.resume else None)
if want.steps < 8:
    trainer.save_checkpoint(want.checkpoint)
else:
    model.eval()
    with torch.no_grad():
        cuts = rows[:32].split(want.evaluation)
        journal.evaluation(
            torch.cat(
                [F.cross_entropy(model(c[:, :-1]).transpose(1, 2), c[:, 1:], reduction="none").mean(1) for c in cuts]
            )
        )
