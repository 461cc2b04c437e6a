"""How good are GPT-2 small and a small Llama after ten epochs of BabyLM's 10 million words, with 16k and 50k tokens?

Question. On BabyLM's strict-small track, is a Llama of like size better than GPT-2 small, and does GPT-2 small do better with a
vocabulary of 16k or of 50k, trained on the corpus itself?

Hypothesis. With 16k tokens the Llama's held-out loss is lower by more than 0.02 nats a token. In bits a byte of the dev files 16k
tokens are better than 50k, most of which are rare in 10 million words.

Regime. GPT-2 small (124M with 50k tokens, 98M with 16k) and a Llama of 135M, one seed each, as many train steps as ten epochs
surely have, of the stand-in sample too, with smaller vocabularies (more are refused once the tokens are counted); states twice
an epoch, and by the train steps that have seen as many words as the challenge asks for (1 to 10, 20 to 100 million). For one
H200: `marin run experiments/exp007_babylm.py --dry-run --device h200` has time, memory and price. Not run: no accelerator.

Metrics. Held-out loss of the corpus' own split (nats a token) for the registered arms, which have one vocabulary; bits a byte of
each dev file, every ten million words, to compare vocabularies; the challenge's own tasks by `marin export --babylm`.

Definition of done. Three trainings with their states are recorded; `marin export RUN --babylm` writes each one's submission; the
table has words seen, loss and run; each run passes `marin verify`.

Issue. docs/babylm.md
"""

from msgspec.structs import replace

from experiments.defaults import default_corpus, default_eval, default_tokenize, default_train
from experiments.exp007_babylm_cpu import report, text, words
from marin.graph import Step
from marin.preregistration.registration import CostCap, Metric, Registration
from marin.recipe.composition import compose
from marin.recipe.schema import Arithmetic, Evaluation, Model, Optimizer, Trainer

SEED = 1
WORDS, SAMPLED = 10_000_000, 100_000
VOCABULARIES, STAND_IN = {"16k": 16_384, "50k": 50_257}, {"16k": 4_096, "50k": 7_168}
"""Tokens; the sample has pieces for 7,358 of them."""
TOKENS_A_WORD = {"16k": 1.25, "50k": 1.2}
"""Less than is expected of a vocabulary; of the sample there are 1.36 and 1.27."""
GPT2: Model = compose(["model=gpt2-small"]).recipe.model
LLAMA: Model = compose(["model=llama-135m", "model.seq_len=1024"]).recipe.model
TRAINER: Trainer = compose(["trainer=babylm-10M"]).recipe.trainer
BATCH = TRAINER.batch_size * GPT2.seq_len
RATE = Optimizer(learning_rate=6e-4, warmup_steps=100, weight_decay=0.1)
MICRO = Arithmetic(microbatch_size=8)
ARMS = {"gpt2-16k": (GPT2, "16k"), "gpt2-50k": (GPT2, "50k"), "llama-16k": (LLAMA, "16k")}

official, dev = text("10M")
whole = official.name == "babylm_10M"
learned = (WORDS if whole else SAMPLED) * (1 - official.validation_fraction)
vocabularies = VOCABULARIES if whole else STAND_IN
trainers = {
    size: replace(TRAINER, num_steps=int((TRAINER.most_epochs or 1) * learned * each / BATCH))
    for size, each in TOKENS_A_WORD.items()
}
corpus = default_corpus(official.name, official)
tokens = {
    name: default_tokenize(f"{official.name}-bpe{size}", corpus, vocab_size=size) for name, size in vocabularies.items()
}
counted = {
    size: Step(
        f"words/{official.name}-bpe{vocabularies[size]}", words, {"limit": WORDS}, {"corpus": corpus, "tokens": made}
    )
    for size, made in tokens.items()
}
measure = Evaluation(batch_size=16, max_sequences=256, minimal_pairs=0)
numbers = {
    name: default_eval(
        default_train(
            f"babylm-{name}",
            tokens[size],
            model=model,
            order=None,
            seed=SEED,
            trainer=trainers[size],
            optimizer=RATE,
            arithmetic=MICRO,
            evaluation=replace(measure, every=2 * TRAINER.steps_per_segment, sets={"dev": dev}),
        ),
        measure,
    )
    for name, (model, size) in ARMS.items()
}
experiment = Registration(
    name="exp007_babylm",
    question="After ten epochs of 10 million words, is a Llama of like size better than GPT-2 small with 16k tokens?",
    hypothesis="Its held-out loss is lower by more than 0.02 nats a token.",
    primary=Metric(name="evaluate.loss", direction="lower"),
    arms={name: numbers[name].config for name in ("gpt2-16k", "llama-16k")},
    baseline="gpt2-16k",
    seeds=(SEED,),
    test="welch",
    cost_cap=CostCap(price=200.0, device="h200"),
)
seen = {name: trainers[size].num_steps * BATCH for name, (_, size) in ARMS.items()}
steps = [
    Step(
        "report/babylm",
        report,
        {"arms": seen, "question": experiment.question, "text": official.name},
        numbers | {f"words-{name}": counted[size] for name, (_, size) in ARMS.items()},
    )
]
