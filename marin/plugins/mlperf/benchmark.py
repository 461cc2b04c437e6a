"""The benchmark of this repository: a small language model on text of the embedded grammar, to a held-out loss.

It has the form of a reference of MLPerf training, at a size that two cores train in a minute. MLCommons has no such
benchmark: what passes here is the form, not a result.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from marin.errors import UsageError
from marin.history.changes import leaves
from marin.plugins.mlperf.hyperparameters import (
    Fixed,
    Formula,
    Hyperparameter,
    OneOf,
    Range,
    as_rules,
    check,
    corpus,
    end_rate,
)
from marin.recipe.composition import compose, installed_conf
from marin.recipe.schema import Recipe, plain, unplain

RULESET = "6.1.0"
"""The version of MLPerf training whose keys a log has."""


@dataclass(frozen=True)
class Benchmark:
    """``target``: the held-out loss (nats a token) at or below which a run has converged; ``table``: the contract of
    the closed division; ``runs``: how many a submission has."""

    name: str
    target: float
    runs: int
    table: tuple[Hyperparameter, ...]


PHASES = "docs/mlperf.md: the run goes on in phases"
ADAMW = "Loshchilov and Hutter 2019"
REFERENCE = "conf/benchmark/grammar_lm.yaml"

GRAMMAR_LM = Benchmark(
    name="grammar_lm",
    target=4.5,
    runs=4,
    table=(
        Hyperparameter(
            "global_batch_size",
            "trainer.batch_size",
            True,
            OneOf((8, 16, 32, 64)),
            "sequences a train step",
            "docs/determinism.md: a multiple of the logical shards",
        ),
        Hyperparameter(
            "micro_batch_size",
            "arithmetic.microbatch_size",
            False,
            Fixed(1),
            "sequences a gradient is computed of",
            "docs/determinism.md: part of the arithmetic contract",
        ),
        Hyperparameter(
            "max_steps",
            "trainer.num_steps",
            True,
            Range(1, 4096),
            "train steps of all phases",
            PHASES,
            read=lambda recipe: recipe.last_step,
        ),
        Hyperparameter("max_sequence_length", "model.seq_len", False, Fixed(32), "tokens a sequence", REFERENCE),
        Hyperparameter("opt_name", "optimizer.name", False, Fixed("adamw"), "optimizer", ADAMW),
        Hyperparameter(
            "opt_base_learning_rate", "optimizer.learning_rate", True, Range(1e-5, 0.1), "rate after the warm-up", ADAMW
        ),
        Hyperparameter(
            "opt_end_learning_rate",
            "optimizer.schedule",
            False,
            Formula("opt_base_learning_rate", lambda values: values["opt_base_learning_rate"]),
            "rate at the last train step",
            PHASES,
            read=end_rate,
        ),
        Hyperparameter(
            "opt_learning_rate_warmup_steps",
            "optimizer.warmup_steps",
            True,
            Range(0, 256),
            "train steps from nothing to the base rate, linear",
            PHASES,
        ),
        Hyperparameter(
            "opt_learning_rate_decay_schedule",
            "optimizer.schedule",
            False,
            Fixed("constant"),
            "after the warm-up",
            PHASES,
        ),
        Hyperparameter("opt_adamw_beta_1", "optimizer.beta1", False, Fixed(0.9), "decay of the first moment", ADAMW),
        Hyperparameter("opt_adamw_beta_2", "optimizer.beta2", False, Fixed(0.95), "decay of the second moment", ADAMW),
        Hyperparameter("opt_adamw_epsilon", "optimizer.epsilon", False, Fixed(1e-8), "added to the root", ADAMW),
        Hyperparameter("opt_adamw_weight_decay", "optimizer.weight_decay", False, Fixed(0.1), "decoupled decay", ADAMW),
        Hyperparameter(
            "opt_gradient_clip_norm",
            "optimizer.max_grad_norm",
            False,
            Fixed(1.0),
            "global norm of the gradient",
            REFERENCE,
        ),
        Hyperparameter("model_architecture", "model.architecture", False, Fixed("llama"), "decoder", REFERENCE),
        Hyperparameter("model_hidden_dim", "model.hidden_dim", False, Fixed(32), "width", REFERENCE),
        Hyperparameter("model_intermediate_dim", "model.intermediate_dim", False, Fixed(88), "width inside", REFERENCE),
        Hyperparameter("model_num_layers", "model.num_layers", False, Fixed(2), "layers", REFERENCE),
        Hyperparameter("model_num_heads", "model.num_heads", False, Fixed(2), "heads of attention", REFERENCE),
        Hyperparameter("model_num_kv_heads", "model.num_kv_heads", False, Fixed(2), "heads of keys", REFERENCE),
        Hyperparameter(
            "model_initializer_range",
            "model.initializer_range",
            False,
            Fixed(0.02),
            "deviation of the first weights",
            REFERENCE,
        ),
        Hyperparameter("vocabulary_size", "tokenizer.vocab_size", False, Fixed(512), "tokens of the BPE", REFERENCE),
        Hyperparameter(
            "dataset",
            "dataset",
            False,
            Fixed("grammar-0-400000-30000"),
            "text: grammar, its seed, bytes of both splits",
            REFERENCE,
            read=corpus,
        ),
        Hyperparameter(
            "eval_max_sequences",
            "evaluation.max_sequences",
            False,
            Fixed(64),
            "held-out sequences that are measured",
            REFERENCE,
        ),
    ),
)
"""The reference's own values are the recipe ``+benchmark=grammar_lm``; its tests hold both together."""


OPEN = (
    "seed",
    "phase",
    "export",
    "arithmetic",
    "trainer.steps_per_segment",
    "trainer.states_at_words",
    "trainer.most_epochs",
    "evaluation.every",
    "evaluation.sets",
    "evaluation.tasks",
)
"""What no contract fixes: the seed and phases have rules of their own, numbers may have any format, the rest says what is
recorded on the way."""


def check_closed(benchmark: Benchmark, recipe: Recipe, *, where: str) -> None:
    """Hold ``recipe`` against the contract of the closed division: whatever the table does not name is as in the reference.

    Raises:
        UsageError: a value is not allowed.
    """
    check(benchmark.table, recipe, where=where)
    free = (*OPEN, *(row.field for row in benchmark.table))
    reference = leaves(plain(compose([f"+benchmark={benchmark.name}"], conf=installed_conf()).recipe))
    own = leaves(plain(recipe))
    for name in sorted(reference.keys() | own.keys()):
        if any(name == one or name.startswith(f"{one}.") for one in free) or own.get(name) == reference.get(name):
            continue
        raise UsageError(
            "what the benchmark's contract does not name is the reference's",
            where=f"{where}: {name}",
            expected=json.dumps(unplain(reference.get(name))),
            found=json.dumps(unplain(own.get(name)))[:200],
            cure="leave it as conf/benchmark has it; another value belongs into the open division",
        )


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What MLPerf wants to know of who submits. Empty ``org`` and ``platform`` are filled from the record: the log's
    origin, and what it was trained on."""

    org: str = ""
    platform: str = ""
    division: Literal["open", "closed"] = "open"
    status: Literal["onprem", "cloud", "research"] = "research"
    poc_name: str = ""
    poc_email: str = ""


def submission_of(text: str | None) -> Submission:
    """The submission in a JSON object, or in the file of that name; all defaults where there is none.

    Raises:
        UsageError: it is not such an object.
    """
    if text is None:
        return Submission()
    try:
        source = text if text.lstrip().startswith("{") else Path(text).read_text("utf-8")
        return msgspec.convert(json.loads(source), Submission)
    except (OSError, ValueError, RecursionError) as error:  # msgspec's ValidationError is a ValueError
        raise UsageError(
            "the submission cannot be read",
            where=f"what is said of the submission: {text[:60]}",
            expected="a JSON object, or a file of one, with " + ", ".join(Submission.__struct_fields__),
            found=str(error),
            cure='such as {"org": "a-lab", "division": "closed"}',
        ) from None


def rules_file(benchmark: Benchmark, division: Literal["closed", "open"] = "closed") -> str:
    """The rules of a division for MLPerf's compliance checker: ``training_<version>/<division>_<name>.yaml``. In the open one
    any recipe may be, so that the target alone is asked for.

    The checker executes what stands in such a file, so it is made from the table and never read from elsewhere.
    """
    reached = (
        "\n- KEY:\n    NAME:  eval_accuracy\n    REQ:   AT_LEAST_ONE\n    CHECK:\n"
        "        - \"'samples_count' in v['metadata']\"\n"
        f"    ATLEAST_ONE_CHECK: \"0.0 < v['value'] <= {benchmark.target!r}\"\n"
    )
    if division == "open":
        return reached.lstrip("\n")
    head = (
        f"# The closed division of {benchmark.name}, beside common.yaml of training {RULESET}.\n"
        "# Printed by `marin mlperf table --as rules`: change the table, not this file.\n\n"
    )
    fresh = (
        "\n- KEY:\n    NAME:  run_stop\n    REQ:   EXACTLY_ONE\n"
        "    CHECK: \" v['metadata']['status'] == 'success' \"\n"
        "\n- KEY:\n    NAME:  seed\n    REQ:   EXACTLY_ONE\n"
        "    CHECK: \" is_integer(v['value']) and v['metadata']['source'] == 'system' \"\n"
    )
    return head + as_rules(benchmark.table) + reached + fresh
