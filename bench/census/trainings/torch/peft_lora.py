"""LoRA on a tiny GPT-2 by PEFT, in a loop of one's own; stopped and resumed by the adapter that PEFT saves, and the optimizer."""

import os

import torch
import torch.distributed as dist
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from torch.nn.parallel import DistributedDataParallel

from bench.census.journal import Journal, setting
from bench.census.trainings.torch.texts import rows_of, tiny_gpt2, tokenizer_of

want = setting()
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
if world > 1:
    dist.init_process_group("gloo")
tokenizer = tokenizer_of(want.text())
rows = torch.tensor([row["input_ids"] for row in rows_of(tokenizer, want.text())])
base = tiny_gpt2(len(tokenizer))
if want.resume:
    tuned = PeftModel.from_pretrained(base, want.checkpoint, is_trainable=True)
else:
    tuned = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, lora_dropout=0.05, target_modules=["c_attn", "c_proj"]))
optimizer = torch.optim.AdamW([p for p in tuned.parameters() if p.requires_grad], lr=1e-2)
first = 0
torch.manual_seed(1 + rank)
if want.resume:
    saved = torch.load(os.path.join(want.checkpoint, "optimizer.pt"), weights_only=True)
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["generator"])
    first = saved["step"]
model = DistributedDataParallel(tuned) if world > 1 else tuned
tuned.train()
journal = Journal(want)

for step in range(first, want.steps):
    total = torch.zeros(())
    for cut in rows[16 * step : 16 * step + 16][rank::world].chunk(want.cut):
        loss = model(input_ids=cut, labels=cut).loss / want.cut
        loss.backward()
        total += loss.detach()
    if world > 1:
        dist.all_reduce(total)
        total /= world
    optimizer.step()
    optimizer.zero_grad()
    journal.step(step, total, get_peft_model_state_dict(tuned))

if want.steps < 8:
    tuned.save_pretrained(want.checkpoint)
    state = {"optimizer": optimizer.state_dict(), "generator": torch.get_rng_state(), "step": want.steps}
    torch.save(state, os.path.join(want.checkpoint, "optimizer.pt"))
else:
    tuned.eval()
    losses = []
    for cut in rows[:32].split(want.evaluation):
        with torch.no_grad():
            logits = tuned(input_ids=cut).logits[:, :-1]
        losses.append(torch.nn.functional.cross_entropy(logits.transpose(1, 2), cut[:, 1:], reduction="none").mean(1))
    journal.evaluation(torch.cat(losses))
