"""The trainings: which file, in which environment, of which library, and which changes do not apply, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LOOP_ALONE = "its own loop: no setting for it"
NO_DEVICES = "one process"


@dataclass(frozen=True)
class Training:
    """``library`` is what the change "earlier" replaces, ``earlier`` by what."""

    name: str
    file: str
    environment: str
    library: str
    earlier: str = ""
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    launched: bool = False  # processes by torchrun
    devices: int = 2  # of the change "devices"
    without: Mapping[str, str] = field(default_factory=dict)


OURS = {"cut": "part of the recipe", "evaluation": "not a part of the step"}
ONCE = {"resumed": "nothing to stop: one call", "devices": "threads are its workers"}
TRAININGS = (
    Training("levanter-llama", "jax/levanter_stock.py", "product", "jax", "jax", ("llama",)),
    Training("levanter-gpt2", "jax/levanter_stock.py", "product", "jax", "jax", ("gpt2",)),
    Training("levanter-qwen3", "jax/levanter_stock.py", "product", "jax", "jax", ("qwen3",)),
    Training("equinox-optax", "jax/equinox_optax.py", "product", "jax", "jax", without={"devices": NO_DEVICES}),
    Training("flax-nnx", "jax/flax_nnx.py", "product", "flax", "flax", without={"devices": NO_DEVICES}),
    Training("jax-data-parallel", "jax/data_parallel.py", "product", "jax", "jax", devices=8),
    Training("nanogpt", "torch/nanogpt.py", "torch", "torch", "torch", launched=True),
    Training("hf-trainer", "torch/hf_trainer.py", "torch", "transformers", "transformers", launched=True),
    Training("trl-sft", "torch/trl_sft.py", "torch", "trl", "trl", launched=True),
    Training("peft-lora", "torch/peft_lora.py", "torch", "peft", "peft", launched=True),
    Training("ray-train", "torch/ray_loop.py", "torch", "ray", "ray"),
    Training("lightning", "torch/lightning_fit.py", "torch", "lightning", "lightning"),
    Training(
        "sentence-transformers",
        "torch/sentences.py",
        "torch",
        "sentence-transformers",
        "sentence-transformers",
        launched=True,
    ),
    Training(
        "keras-torch",
        "torch/keras_fit.py",
        "torch",
        "keras",
        "keras",
        variables={"KERAS_BACKEND": "torch"},
        without={"devices": "not with this backend"},
    ),
    Training("keras-jax", "torch/keras_fit.py", "plain", "keras", "keras", variables={"KERAS_BACKEND": "jax"}),
    Training(
        "lm-eval",
        "torch/lm_eval_harness.py",
        "torch",
        "lm-eval",
        "lm-eval",
        without={"devices": NO_DEVICES, "cut": "it trains nothing"},
    ),
    Training(
        "sklearn-mlp",
        "tables/sklearn_mlp.py",
        "plain",
        "scikit-learn",
        "scikit-learn",
        without={"devices": LOOP_ALONE, "cut": "a cut is another training: a step each"},
    ),
    Training(
        "sklearn-kmeans",
        "tables/sklearn_kmeans.py",
        "plain",
        "scikit-learn",
        "scikit-learn",
        without={"devices": "threads are its workers", "cut": "no batches"},
    ),
    Training("sklearn-forest", "tables/sklearn_forest.py", "plain", "scikit-learn", "scikit-learn"),
    Training(
        "lightgbm",
        "tables/lightgbm_trees.py",
        "plain",
        "lightgbm",
        "lightgbm",
        without={"devices": "threads are its workers"},
    ),
    Training(
        "xgboost",
        "tables/xgboost_trees.py",
        "plain",
        "xgboost",
        "xgboost",
        without={"devices": "threads are its workers"},
    ),
    Training(
        "datatrove-minhash",
        "text/minhash.py",
        "torch",
        "datatrove",
        "datatrove",
        without={"evaluation": "nothing to evaluate"},
    ),
    Training("tokenizers-bpe", "text/vocabulary.py", "plain", "tokenizers", "tokenizers", ("bpe",), without=ONCE),
    Training(
        "tokenizers-unigram", "text/vocabulary.py", "plain", "tokenizers", "tokenizers", ("unigram",), without=ONCE
    ),
    Training(
        "tokenizers-wordpiece", "text/vocabulary.py", "plain", "tokenizers", "tokenizers", ("wordpiece",), without=ONCE
    ),
    Training("ours-portable-cpu", "ours/profile.py", "product", "jax", "jax", ("portable-cpu",), without=OURS),
    Training("ours-exact", "ours/profile.py", "product", "jax", "jax", ("exact",), without=OURS),
)
