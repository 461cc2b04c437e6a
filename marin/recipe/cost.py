"""What a step will cost before it is run: arithmetic, memory, bytes, time on a named device, price. Pure functions.

Arithmetic follows the estimate that Levanter uses (lm_flops_per_token, after Narayanan et al. 2021, "Efficient
large-scale language model training on GPU clusters using Megatron-LM"): a test holds both equal. Training is three
times the forward pass. Activations follow Korthikanti et al. 2022, "Reducing activation recomputation in large
transformer models", table 2 without parallelism, in the recipe's dtype; a training layer by layer keeps those of one
layer. Time is what earlier runs of this machine measured, per unit of work, and where there are none the device's peak
times a stated utilisation: ``Estimate.basis`` says which.

Estimates are for deciding, never evidence: nothing here is recorded in a run.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta, Struct

from marin.errors import UsageError
from marin.recipe.form.yaml import MOST_BYTES, read_yaml
from marin.recipe.schema import FilesDataset, GrammarDataset, Model, Recipe, SingleDataset, UrlDataset, parts
from marin.recipe.units import HOUR, human_size, human_time

HERE = "here"
"""The device of the price table that means: this machine, by what was measured on it."""

FLOAT32, INT32 = 4, 4
TRAINING_PASSES = 3
"""A backward pass costs two forward passes."""
BYTES_PER_TOKEN = 4.0
"""Of English under a byte-level BPE of a few thousand tokens; only for what has not been tokenized yet."""
ASSUMED_SECONDS_PER_BYTE = {"corpus": 2e-6, "tokenizer": 5e-7, "tokens": 1e-6, "export": 1e-8}
"""Two cores of x86-64-v3, where nothing was measured: the grammar writes half a megabyte a second, BPE reads two."""
START_SECONDS = {"train": 15.0, "evaluate": 15.0, "export": 10.0, "tokens": 8.0}
"""Imports and compilation on two cores: what a small step costs before its first product."""


class Device(Struct, frozen=True, forbid_unknown_fields=True):
    """One line of the price table. ``peak``: FLOP/s by compute dtype; ``hourly``: price of one device for one hour;
    ``process_bytes``: what a process takes of the same memory besides its arrays (0 where arrays have a memory of their
    own); ``per_core``: peak is that of one core, of which a step uses as many as its arithmetic contract has
    threads."""

    note: str
    peak: dict[str, Annotated[float, Meta(gt=0)]]
    memory_bytes: Annotated[int, Meta(ge=1)] | None
    utilisation: Annotated[float, Meta(gt=0, le=1)]
    hourly: Annotated[float, Meta(ge=0)]
    seen: date
    process_bytes: Annotated[int, Meta(ge=0)] = 0
    per_core: bool = False


class Prices(Struct, frozen=True, forbid_unknown_fields=True):
    """The dated price table."""

    date: date
    currency: str
    devices: dict[str, Device]

    def device(self, name: str) -> Device:
        """The device of this name; :class:`UsageError` with the nearest name otherwise."""
        if name in self.devices:
            return self.devices[name]
        near = difflib.get_close_matches(name, self.devices, n=1)
        raise UsageError(
            "unknown device",
            where=name,
            expected=", ".join(self.devices),
            found=name,
            cure=f"did you mean {near[0]}?" if near else "add it to conf/prices.yaml",
        )


def load_prices(path: Path) -> Prices:
    """The price table in ``path``; :class:`UsageError` names the first value that does not fit."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        return msgspec.convert(read_yaml(data), Prices)
    except FileNotFoundError:
        raise UsageError(
            "no price table",
            where=str(path),
            expected="conf/prices.yaml",
            found="no such file",
            cure="run this in the project's folder, or take the file from the repository",
        ) from None
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(
            "the price table cannot be read",
            where=str(path),
            expected="date, currency, devices",
            found=" ".join(str(error).split()),
            cure="compare it with the repository's",
        ) from None


@dataclass(frozen=True)
class Work:
    """What a step has to do, whatever does it. ``flops``: model FLOPs. ``executed_flops``: with what is computed again
    under gradient checkpointing, and with experts that a token does not get. Bytes are of the step's own files; ``memory_bytes``
    is the peak on one device, of which ``devices`` compute; ``beside_bytes`` are taken once more where those are virtual."""

    flops: float = 0.0
    executed_flops: float = 0.0
    read_bytes: float = 0.0
    write_bytes: float = 0.0
    memory_bytes: float = 0.0
    beside_bytes: float = 0.0
    devices: int = 1
    known: bool = True
    dtype: str = "float32"
    threads: int = 1

    @classmethod
    def unknown(cls) -> Work:
        """Of a step that nothing is known about: only measured time can say something of it."""
        return cls(known=False)


@dataclass(frozen=True)
class Estimate:
    """What one step, or all of them, will cost. ``seconds`` and ``price`` are None where nothing is known; ``basis``
    says what the time rests on; ``fits`` is False when the device has less memory than that."""

    step: str
    flops: float
    memory_bytes: float
    bytes: float
    seconds: float | None
    price: float | None
    currency: str
    device: str
    basis: str
    fits: bool = True

    def as_json(self) -> dict[str, object]:
        """As ``--json`` prints it."""
        return {
            "step": self.step,
            "flops": self.flops,
            "memory_bytes": round(self.memory_bytes),
            "bytes": round(self.bytes),
            "seconds": self.seconds,
            "price": self.price,
            "currency": self.currency,
            "device": self.device,
            "basis": self.basis,
            "fits": self.fits,
        }


class Throughput(Protocol):
    """What earlier runs measured on this machine (:mod:`marin.history.measured`)."""

    def seconds(self, step: str, work: Work, assumed: Callable[[Work], float | None]) -> tuple[float, str] | None:
        """How long ``work`` should take, and what that rests on; None where nothing like it was measured. ``assumed``:
        seconds by the price table, without the start of a process."""


def flops_per_token(model: Model, vocab_size: int, context: int | None = None) -> float:
    """FLOPs of one forward pass for one token at a context of ``context`` tokens (the model's own by default)."""
    hidden, heads, span = model.hidden_dim, model.num_heads, context or model.seq_len
    across = heads * model.head
    gpt2 = model.architecture == "gpt2"
    kv_heads = heads if gpt2 else model.num_kv_heads
    experts, router = model.num_experts_per_tok or 1, 2 * hidden * (model.num_experts or 0)
    mlp = 2 * (2 if gpt2 else 3) * hidden * model.inner * experts + router
    projections = 2 * hidden * (across + 2 * kv_heads * model.head) + 2 * hidden * across
    attention = 4 * span * across + 3 * span * heads
    return float(model.num_layers * (mlp + projections + attention) + 2 * hidden * vocab_size)


def _executed(model: Model, vocab_size: int) -> float:
    """What is executed of a forward pass, as a share of its FLOPs: more where every token goes through every expert."""
    every = msgspec.structs.replace(model, num_experts_per_tok=model.num_experts)
    return flops_per_token(every, vocab_size) / flops_per_token(model, vocab_size)


def parameters(model: Model, vocab_size: int) -> int:
    """Number of trained parameters."""
    hidden, layers = model.hidden_dim, model.num_layers
    if model.architecture == "gpt2":
        wide = model.inner
        block = (
            (hidden + 1) * 3 * hidden + (hidden + 1) * hidden + (hidden + 1) * wide + (wide + 1) * hidden + 4 * hidden
        )
        return vocab_size * hidden + model.seq_len * hidden + layers * block + 2 * hidden
    attention = 2 * hidden * model.head * (model.num_heads + model.num_kv_heads)
    norms = 2 * hidden + (2 * model.head if model.architecture in ("qwen3", "qwen3_moe") else 0)
    if model.architecture == "olmo2":
        norms += model.head * (model.num_heads + model.num_kv_heads)
    router = hidden * (model.num_experts or 0)
    block = attention + 3 * hidden * model.intermediate_dim * (model.num_experts or 1) + router + norms
    return (1 if model.tie_word_embeddings else 2) * vocab_size * hidden + layers * block + hidden


def matrix_parameters(model: Model) -> int:
    """Number of parameters in the matrices of the layers, without those of experts, which Levanter's mask leaves to Adam."""
    hidden, across = model.hidden_dim, model.head * (model.num_heads + model.num_kv_heads)
    if model.architecture == "gpt2":
        return model.num_layers * (4 * hidden * hidden + 2 * hidden * model.inner)
    inner = hidden * model.num_experts if model.num_experts else 3 * hidden * model.intermediate_dim  # or the router
    return model.num_layers * (2 * hidden * across + inner)


def adapter_parameters(model: Model, rank: int) -> int:
    """Number of parameters of low-rank adapters beside every matrix of the layers."""
    hidden = model.hidden_dim
    if model.architecture == "gpt2":
        wide = model.inner
        return rank * model.num_layers * (6 * hidden + 2 * (hidden + wide))
    across = 2 * model.head * (model.num_heads + model.num_kv_heads)
    return rank * model.num_layers * (4 * hidden + across + 3 * (hidden + model.intermediate_dim))


def activation_bytes(
    model: Model, vocab_size: int, sequences: int, width: int = FLOAT32, *, backward: bool = True
) -> float:
    """What a forward pass keeps for the backward pass of ``sequences`` at once; without one (``backward`` False) a layer
    is gone when the next has read it. ``width``: bytes of a number."""
    tokens = sequences * model.seq_len
    layer = _layer_bytes(model, tokens, width)
    logits = 2 * tokens * vocab_size * FLOAT32
    if not backward:
        return max(layer, logits)
    if model.gradient_checkpointing:
        return model.num_layers * tokens * model.hidden_dim * width + layer + logits
    return model.num_layers * layer + logits


def _layer_bytes(model: Model, tokens: int, width: int, *, scores: bool = True) -> float:
    """What a layer keeps for its backward pass; ``scores``: those of attention too, which a kernel computes again.

    The paper counts bytes at two a number. There is no dropout here: 34 is 32 without the two masks of a layer, and
    5 a s / h is 2 a s / h without attention's mask and the copy that it drops from. Every expert has a place for every token,
    for what comes in, for both products and their own, and for what comes out.
    """
    attention = 2 * model.num_heads * model.seq_len / model.hidden_dim if scores else 0
    experts = (model.num_experts or 0) * (2 * model.hidden_dim + 3 * model.inner)
    return tokens * (model.hidden_dim * (32 + attention) / 2 + experts) * width


def state_bytes(recipe: Recipe) -> int:
    """Bytes of one recorded training state: parameters and moments in float32."""
    name, whole = recipe.optimizer.name, parameters(recipe.model, recipe.vocabulary)
    if recipe.lora is not None:
        moments = {"adamw": 2, "lion": 1}[name]
        return (whole + adapter_parameters(recipe.model, recipe.lora.rank) * (1 + moments)) * FLOAT32
    kept = (1 if name in ("lion", "scion", "adafactor") else 2) * whole  # Adafactor keeps less of what is long
    if name in ("muon", "muonh"):
        kept -= matrix_parameters(recipe.model)
    return (whole + kept) * FLOAT32


def text_bytes(recipe: Recipe) -> float:
    """Bytes of text that the recipe's dataset holds; those of files are what lies there now, 0 where nothing does."""
    return sum(_text_bytes(part) for part in parts(recipe.dataset).values())


def _text_bytes(dataset: SingleDataset) -> int:
    if isinstance(dataset, GrammarDataset):
        return dataset.train_bytes + dataset.validation_bytes
    if isinstance(dataset, UrlDataset):
        return dataset.size
    if not isinstance(dataset, FilesDataset):
        return 0  # what an artifact holds is known once it is made
    return sum(path.stat().st_size for pattern in dataset.globs for path in _matching(pattern))


def _matching(pattern: str) -> list[Path]:
    path = Path(pattern)
    root = Path(path.anchor) if path.is_absolute() else Path()
    return [
        found for found in root.glob(str(path.relative_to(root) if path.is_absolute() else path)) if found.is_file()
    ]


def work_of(step: str, recipe: Recipe, *, devices: int = 1, slices: int = 1) -> Work:
    """What the pipeline's step of this name has to do for ``recipe``; :meth:`Work.unknown` for any other name. ``slices``: of a
    pod, each of which holds the state of a training layer by layer."""
    match step:
        case "corpus":
            size = text_bytes(recipe)
            return Work(write_bytes=size * 1.1, read_bytes=size, memory_bytes=2e7)
        case "tokenizer":
            size = text_bytes(recipe)
            return Work(read_bytes=size, write_bytes=40.0 * recipe.vocabulary, memory_bytes=10 * size)
        case "tokens":
            size = text_bytes(recipe)
            return Work(read_bytes=size, write_bytes=size / BYTES_PER_TOKEN * INT32, memory_bytes=1e8)
        case "train":
            return _training(recipe, devices, slices)
        case "evaluate":
            return _evaluation(recipe)
        case "export":
            size = parameters(recipe.model, recipe.vocabulary) * FLOAT32
            return Work(read_bytes=state_bytes(recipe), write_bytes=size, memory_bytes=2.0 * size)
        case _:
            return Work.unknown()


def _training(recipe: Recipe, devices: int, slices: int) -> Work:
    model, trainer, vocab = recipe.model, recipe.trainer, recipe.vocabulary
    forward = flops_per_token(model, vocab) * trainer.num_steps * trainer.batch_size * model.seq_len
    needed = TRAINING_PASSES + (recipe.together - 1)  # of preferences, a forward pass of the reference
    by_layer = recipe.arithmetic.gather == "layer"
    passes = needed + (1 if model.gradient_checkpointing or by_layer else 0)
    weights = parameters(model, vocab) * FLOAT32
    moments = state_bytes(recipe) - weights
    width = 2 if recipe.arithmetic.compute_dtype == "bfloat16" else FLOAT32
    if by_layer:
        memory = _by_layer_bytes(recipe, devices, slices, width)
    else:  # parameters, the folded gradient and the one being added, and this device's rows of the moments
        kept = activation_bytes(model, vocab, recipe.arithmetic.microbatch_size, width)
        memory = 3 * weights + moments / devices + kept
    segments = math.ceil(trainer.num_steps / trainer.steps_per_segment) + len(trainer.states_at_words or ())
    return Work(
        flops=needed * forward,
        executed_flops=passes * forward * _executed(model, vocab),
        memory_bytes=memory,
        # A slice of the gradient is copied to the device for which the update is compiled, which needs twice as much for itself.
        beside_bytes=3 * weights / recipe.arithmetic.logical_shards if by_layer and devices > 1 else 0.0,
        devices=devices,
        read_bytes=float(trainer.num_steps * trainer.batch_size * model.seq_len * INT32),
        write_bytes=float((segments + 1) * state_bytes(recipe)),
        dtype=recipe.arithmetic.compute_dtype,
        threads=recipe.arithmetic.threads,
    )


def _by_layer_bytes(recipe: Recipe, devices: int, slices: int, width: int) -> float:
    """The peak of a device that never holds all parameters (:mod:`marin.plugins.scale.layered`): its slices of the state and of
    the gradient, of which there is a copy for each level of the tree over its own blocks, and one for microbatches; what
    goes from layer to layer; the weights of two layers ahead; and a layer, or the head, with its gradient and what it keeps."""
    model, trainer, arithmetic, vocab = recipe.model, recipe.trainer, recipe.arithmetic, recipe.vocabulary
    micro, blocks, exact = (
        arithmetic.microbatch_size,
        arithmetic.logical_shards // devices,
        arithmetic.profile == "exact",
    )
    tokens, head = micro * model.seq_len, vocab * model.hidden_dim * width
    copies = 1 + max(0, blocks - 1).bit_length() + (trainer.batch_size // arithmetic.logical_shards > micro)
    if exact:  # devices share a microbatch
        tokens = -(-tokens // devices)
    lying = (state_bytes(recipe) + copies * parameters(model, vocab) * FLOAT32) * slices / devices
    one, two = (parameters(msgspec.structs.replace(model, num_layers=count), vocab) for count in (1, 2))
    layer = (two - one) * width
    between = (model.num_layers + 1) * tokens * model.hidden_dim * width + 2 * layer
    tied = model.tie_word_embeddings or model.architecture == "gpt2"
    between += head * (2 - tied if exact else int(tied))  # under exact both ends stay for the whole step
    logits = min(arithmetic.loss_block or tokens, tokens) * min(arithmetic.loss_vocabulary or vocab, vocab)
    kept = _layer_bytes(model, tokens, width, scores=arithmetic.attention is None)
    return lying + between + max(2 * layer + kept, 2 * head + 2 * logits * FLOAT32)


def _evaluation(recipe: Recipe) -> Work:
    model, vocab = recipe.model, recipe.vocabulary
    sequences = recipe.evaluation.max_sequences + 2 * recipe.evaluation.minimal_pairs
    flops = flops_per_token(model, vocab) * sequences * model.seq_len
    memory = parameters(model, vocab) * FLOAT32 + activation_bytes(
        model, vocab, recipe.evaluation.batch_size, backward=False
    )
    return Work(
        flops=flops,
        executed_flops=flops * _executed(model, vocab),
        read_bytes=float(state_bytes(recipe)),
        memory_bytes=memory,
        dtype=recipe.arithmetic.compute_dtype,
        threads=recipe.arithmetic.threads,
    )


def estimate(
    step: str, work: Work, prices: Prices, device: str = HERE, measured: Throughput | None = None, *, devices: int = 1
) -> Estimate:
    """What ``work`` costs on ``devices`` of the device of this name. What was measured counts only for ``here``."""
    line = prices.device(device)
    found = None
    if measured is not None and device == HERE:
        found = measured.seconds(step, work, lambda other: _assumed(step, other, line, devices))
    if found is None and (seconds_alone := _assumed(step, work, line, devices)) is not None:
        found = START_SECONDS.get(step, 1.0) + seconds_alone, _basis(step, work, line)
    seconds, basis = found if found is not None else (None, "nothing like it was measured")
    price = None if seconds is None else seconds / HOUR * line.hourly * devices
    memory = work.memory_bytes + (line.process_bytes if work.known else 0)
    if device == HERE:  # its devices are virtual, and have one memory
        memory += (work.devices - 1) * work.memory_bytes + work.beside_bytes
    fits = line.memory_bytes is None or memory <= line.memory_bytes
    return Estimate(step, work.flops, memory, work.write_bytes, seconds, price, prices.currency, device, basis, fits)


def _assumed(step: str, work: Work, device: Device, devices: int) -> float | None:
    """Seconds by the table, without the start of the process."""
    if not work.known:
        return None
    if work.executed_flops:
        return work.executed_flops / (_peak(work, device) * device.utilisation * devices)
    rate = ASSUMED_SECONDS_PER_BYTE.get(step)
    return None if rate is None else rate * max(work.read_bytes, work.write_bytes)


def _peak(work: Work, device: Device) -> float:
    return device.peak.get(work.dtype, device.peak["float32"]) * (work.threads if device.per_core else 1)


def _basis(step: str, work: Work, device: Device) -> str:
    if work.executed_flops:
        return f"peak of {_peak(work, device):.3g} FLOP/s at {device.utilisation:.0%}"
    return f"{1e-6 / ASSUMED_SECONDS_PER_BYTE[step]:.3g} MB/s assumed"


def totals(estimates: Iterable[Estimate]) -> Estimate:
    """The sum of several steps: FLOPs, bytes, time one after the other and price; memory is the largest."""
    items = list(estimates)
    known = [item.seconds for item in items if item.seconds is not None]
    prices = [item.price for item in items if item.price is not None]
    missing = len(items) - len(known)
    return Estimate(
        step="total",
        flops=sum(item.flops for item in items),
        memory_bytes=max((item.memory_bytes for item in items), default=0.0),
        bytes=sum(item.bytes for item in items),
        seconds=sum(known) if known or not items else None,
        price=sum(prices) if prices or not items else None,
        currency=items[0].currency if items else "",
        device=items[0].device if items else "",
        basis=f"without {missing} of {len(items)} steps" if missing else "the sum of all steps",
        fits=all(item.fits for item in items),
    )


def in_words(estimate: Estimate) -> Mapping[str, str]:
    """An estimate as people read it: FLOPs, memory, bytes, time, price."""
    from_seconds = "" if estimate.seconds is None else human_time(estimate.seconds)
    price = "" if estimate.price is None else f"{estimate.price:.2f} {estimate.currency}"
    return {
        "flops": f"{estimate.flops:.2e}" if estimate.flops else "",
        "memory": human_size(estimate.memory_bytes) if estimate.memory_bytes else "",
        "bytes": human_size(estimate.bytes) if estimate.bytes else "",
        "time": from_seconds,
        "price": price,
    }
