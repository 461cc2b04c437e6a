"""A loop in torch under Ray Train, after its first tutorial: TorchTrainer, prepare_model, prepare_data_loader, a checkpoint by
epoch through `ray.train.report`. An epoch has four steps."""

import os
import tempfile
from typing import Any

import ray
import torch
from ray import train
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from bench.census.journal import Journal, Setting, setting

CONTEXT, WIDTH, EPOCH = 32, 128, 4


class Characters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(128, 64), nn.Linear(WIDTH, 128)
        self.recurrent, self.norm = nn.GRU(64, WIDTH, batch_first=True), nn.LayerNorm(WIDTH)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.recurrent(self.embed(ids))[0]))


def losses_of(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(rows[:, :-1]).transpose(1, 2), rows[:, 1:], reduction="none").mean(1)


def loop(config: dict[str, Any]) -> None:
    want = Setting(**config)
    journal = Journal(want)
    torch.manual_seed(0)
    text = torch.tensor(list(want.text().encode("ascii")))
    rows = text[: len(text) // CONTEXT * CONTEXT].view(-1, CONTEXT)
    size = 16 // want.cut // want.devices
    loader = prepare_data_loader(DataLoader(TensorDataset(rows[: 16 * EPOCH]), batch_size=size, shuffle=True))
    model = prepare_model(Characters())
    plain = model.module if want.devices > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    first = 0
    saved = train.get_checkpoint()
    if saved is not None:
        with saved.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state.pt"), weights_only=True)
        plain.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
    for epoch in range(first, want.steps // EPOCH):
        if want.devices > 1:
            loader.sampler.set_epoch(epoch)
        losses, seen, step = [], [], EPOCH * epoch
        for (cut,) in loader:
            loss = losses_of(model, cut).mean()
            (loss / want.cut).backward()
            losses.append(loss.detach())
            seen.append(cut)
            if len(losses) < want.cut:
                continue
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            mean, batch = everywhere(torch.stack(losses)).mean(), everywhere(torch.cat(seen))
            journal.step(step, mean, plain.state_dict(), batch)
            losses, seen, step = [], [], step + 1
        with tempfile.TemporaryDirectory() as folder:
            state = {"model": plain.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, os.path.join(folder, "state.pt"))
            train.report({"loss": float(mean)}, checkpoint=Checkpoint.from_directory(folder))
    if want.steps == 8:
        with torch.no_grad():
            journal.evaluation(torch.cat([losses_of(plain, cut) for cut in rows[:32].split(want.evaluation)]))


def everywhere(values: torch.Tensor) -> torch.Tensor:
    """The values of all workers, one behind the other."""
    if not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1:
        return values
    parts = [torch.empty_like(values) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(parts, values)
    return torch.cat(parts)


if __name__ == "__main__":
    want = setting()
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 * 2**20)
    trainer = TorchTrainer(
        loop,
        train_loop_config=vars(want),
        scaling_config=ScalingConfig(num_workers=want.devices),
        run_config=RunConfig(name="census", storage_path=want.checkpoint),
    )
    trainer.fit()
