"""An evaluation by lm-evaluation-harness through transformers: log-likelihoods of 48 continuations of unequal length."""

import os

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import CachingLM
from lm_eval.models.huggingface import HFLM

from bench.census.journal import Journal, setting
from bench.census.trainings.torch.texts import tiny_gpt2, tokenizer_of

want = setting()
tokenizer = tokenizer_of(want.text())
words = want.text().split()
requests = []
for n in range(48):
    parts = words[9 * n : 9 * n + 3 + n % 7], words[9 * n + 3 + n % 7 : 9 * n + 10]
    requests.append(Instance("loglikelihood", {}, (" ".join(parts[0]), " " + " ".join(parts[1])), n))
model = tiny_gpt2(len(tokenizer)).eval()
with torch.no_grad():  # further from uniform than a fresh model
    for values in model.parameters():
        values.mul_(4)
harness = HFLM(
    pretrained=model, tokenizer=tokenizer, backend="causal", batch_size=want.evaluation, max_length=64, device="cpu"
)
asked = requests[: len(requests) * want.steps // 8]
asking = CachingLM(harness, os.path.join(want.folder, "answers.db")) if want.steps < 8 or want.resume else harness
answers = asking.loglikelihood(asked)
likelihoods = torch.tensor([answer[0] for answer in answers], dtype=torch.float64)
if want.steps == 8:
    journal = Journal(want)
    greedy = torch.tensor([answer[1] for answer in answers])
    journal.step(0, -likelihoods.mean(), {"likelihoods": likelihoods, "greedy": greedy})
    journal.evaluation(likelihoods)
