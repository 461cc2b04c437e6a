"""A GPT of two layers by hand in torch, as in a first tutorial: causal attention, GELU, AdamW, gradient accumulation, DDP."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from bench.census.journal import Journal, setting

WIDTH, HEADS, CONTEXT, BATCH = 128, 4, 64, 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = [t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(WIDTH, dim=-1)]
        attended = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(-2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(128, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 128, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


want = setting()
journal = Journal(want)
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
if world > 1:
    dist.init_process_group("gloo")

text = torch.tensor(list(want.text().encode("ascii")))
torch.manual_seed(0)
plain = GPT()
model = DistributedDataParallel(plain) if world > 1 else plain
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
draw = torch.Generator().manual_seed(1)
first = 0
if want.resume:
    saved = torch.load(want.checkpoint, weights_only=True)
    plain.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    draw.set_state(saved["draw"])
    first = saved["step"]

for step in range(first, want.steps):
    starts = torch.randint(len(text) - CONTEXT - 1, (BATCH,), generator=draw)
    rows = torch.stack([text[s : s + CONTEXT + 1] for s in starts])
    mine = rows[rank::world]
    total = torch.zeros(())
    for rows_of_cut in mine.chunk(want.cut):
        logits = model(rows_of_cut[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), rows_of_cut[:, 1:].flatten()) / want.cut
        loss.backward()
        total += loss.detach()
    if world > 1:
        dist.all_reduce(total, dist.ReduceOp.AVG if dist.get_backend() == "nccl" else dist.ReduceOp.SUM)
        total /= world
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    journal.step(step, total, plain.state_dict(), rows)

if want.steps < 8:
    state = {
        "model": plain.state_dict(),
        "optimizer": optimizer.state_dict(),
        "draw": draw.get_state(),
        "step": want.steps,
    }
    torch.save(state, want.checkpoint)
else:
    held_out = text[: 32 * CONTEXT].view(32, CONTEXT)
    with torch.no_grad():
        losses = [
            F.cross_entropy(plain(rows[:, :-1]).transpose(1, 2), rows[:, 1:], reduction="none").mean(dim=1)
            for rows in held_out.split(want.evaluation)
        ]
    journal.evaluation(torch.cat(losses))
