"""The section ``optimizer`` of a recipe: which rule moves the parameters, with the fields that Levanter's class has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, structs

from marin.errors import UsageError
from marin.recipe.section import Count, Rate, Section

Momentum = Annotated[float, Meta(ge=0.0, lt=1.0)]
Small = Annotated[float, Meta(gt=0.0, le=1.0)]
LearningRate = Annotated[float, Meta(gt=0.0, le=10.0)]
Turns = Annotated[int, Meta(ge=1, le=64)]
ELEMENTWISE = ("adamw", "lion")
"""Optimizers that move every number of a tensor by itself, so that a tensor may be cut anywhere."""

ACROSS_TENSORS = "marin.profiles", "across"
"""Group and name of the plugin that has the others."""


class Optimizer(Section, frozen=True):
    """An optimizer with decoupled weight decay, clipping by global norm, warm-up and decay of the rate.

    ``adamw`` and ``lion`` look at one number at a time. The others look across a tensor, so they would need a fixed order
    of each sum, and are for profile ``exact``, where sums have none: ``muon``, ``muonh``, ``adamh``, ``scion``, ``cautious``
    and ``mini`` are Levanter's, ``adafactor`` is optax's with Levanter's schedule, decay and clipping. Fields from ``adam_lr``
    on belong to some of them (:data:`OWN`), are named as Levanter and optax name them, and are null for all others.
    """

    name: Literal["adamw", "lion", "muon", "muonh", "adamh", "scion", "cautious", "mini", "adafactor"] = "adamw"
    learning_rate: LearningRate = 6e-3
    min_lr_ratio: Rate = 0.1
    warmup_steps: Count = 20
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    decay: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    """The last part of all train steps, in which the rate decays; it is stable before (WSD, arXiv:2404.06395). None: it decays
    from the end of the warm-up on."""
    rounding: Literal["nearest"] | None = None
    """How many train steps ``decay`` is of: the nearest number, as in every recipe that is composed; None: what is less than a
    step is cut off, as runs recorded that began before there was this field."""
    weight_decay: Annotated[float, Meta(ge=0.0, le=10.0)] = 0.1
    beta1: Momentum = 0.9
    beta2: Momentum = 0.95
    epsilon: Small = 1e-8
    max_grad_norm: Annotated[float, Meta(gt=0.0)] = 1.0
    """Of the whole gradient; of an optimizer with groups of tensors each group that Levanter clips is clipped by itself."""
    adam_lr: LearningRate | None = None
    """The highest rate of the tensors that Adam moves, on the schedule of the others."""
    momentum: Momentum | None = None
    nesterov: bool | None = None
    backend_steps: Turns | None = None
    """Turns of the Newton-Schulz iteration that makes a matrix nearly orthogonal."""
    coefficient_type: Literal["simple", "quintic", "polar_express", "aol"] | None = None
    """The coefficients of its turns, as Levanter names them."""
    muon_epsilon: Small | None = None
    use_kimi_scaling: bool | None = None
    adam_weight_decay: Annotated[float, Meta(ge=0.0, le=10.0)] | None = None
    """Of the tensors that Adam moves; None: ``weight_decay``."""
    scion_to_signum_lr: LearningRate | None = None
    scion_epsilon: Small | None = None
    min_dim_size_to_factor: Annotated[int, Meta(ge=1, le=1_048_576)] | None = None
    """From which length on of its two longest axes a tensor's second moments are kept as a row and a column."""
    decay_rate: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    clipping_threshold: Annotated[float, Meta(gt=0.0)] | None = None
    multiply_by_parameter_scale: bool | None = None
    factored_epsilon: Small | None = None

    @property
    def elementwise(self) -> bool:
        """Whether it moves every number by itself."""
        return self.name in ELEMENTWISE

    @property
    def plugins(self) -> tuple[tuple[str, str], ...]:
        """Group and name of the plugin that has it, where one does."""
        return () if self.elementwise else (ACROSS_TENSORS,)


_NEWTON_SCHULZ: Mapping[str, Any] = {"momentum": 0.95, "backend_steps": 5, "coefficient_type": "quintic"}
OWN: Mapping[str, Mapping[str, Any]] = {
    "adamw": {},
    "lion": {},
    "muon": {
        **_NEWTON_SCHULZ,
        "adam_lr": 6e-4,
        "nesterov": True,
        "muon_epsilon": 1e-8,
        "use_kimi_scaling": False,
        "adam_weight_decay": None,
    },
    "muonh": {**_NEWTON_SCHULZ, "adam_lr": 6e-4, "nesterov": True, "muon_epsilon": 1e-8},
    "adamh": {"adam_lr": 6e-4},
    "scion": {**_NEWTON_SCHULZ, "backend_steps": 10, "scion_to_signum_lr": 0.25, "scion_epsilon": 1e-8},
    "cautious": {},
    "mini": {},
    "adafactor": {
        "min_dim_size_to_factor": 128,
        "decay_rate": 0.8,
        "clipping_threshold": 1.0,
        "multiply_by_parameter_scale": True,
        "factored_epsilon": 1e-30,
    },
}
"""The fields that an optimizer has beside those of all, with the value that Levanter (optax) gives them."""
UNREAD: Mapping[str, frozenset[str]] = {
    "lion": frozenset({"epsilon"}),
    "scion": frozenset({"beta2", "epsilon"}),
    "adafactor": frozenset({"beta1", "beta2", "epsilon"}),
}
"""Fields of all optimizers that one of them does not read."""
_LATER = frozenset(name for own in OWN.values() for name in own)
NO_EXACT_FORM: Mapping[str, str] = {
    "soap": "SOAP takes eigenvectors and QR factors from LAPACK, whose roundings nothing here says",
    "kron": "Kron solves triangular systems by LAPACK, whose roundings nothing here says",
    "mars": "Levanter's MARS calls jax.tree_map, which the locked jax does not have",
    "skipstep": "it leaves out steps by the losses before, and a recorded step is applied wherever its numbers are finite",
}
"""Optimizers that are known and refused, with the reason."""


def completed(optimizer: Optimizer) -> Optimizer:
    """With Levanter's value in every field of its own that says nothing, as a new recipe is recorded."""
    own = dict(OWN[optimizer.name]) | ({} if optimizer.decay is None else {"rounding": "nearest"})
    return structs.replace(
        optimizer, **{name: value for name, value in own.items() if getattr(optimizer, name) is None}
    )


def foreign(name: object) -> frozenset[str]:
    """The fields that belong to other optimizers than the one of this name, and that nobody who chose it means."""
    return _LATER - OWN.get(str(name), {}).keys()


def check_name(name: object, where: str) -> None:
    """Refuse an optimizer that is known and has no exact form, with the reason.

    Raises:
        UsageError: it is one.
    """
    if isinstance(name, str) and name in NO_EXACT_FORM:
        raise UsageError(
            "an optimizer whose bits nothing here fixes",
            where=f"{where}: optimizer.name",
            expected=f"one of {', '.join(OWN)}",
            found=f"{name}: {NO_EXACT_FORM[name]}",
            cure="choose optimizer=muon, or another one",
        )


def check_written(values: object, name: str, where: str) -> None:
    """Refuse null in a field of its own that Levanter could not compute with, in the section as a user wrote it.

    Raises:
        UsageError: which field.
    """
    for field, value in OWN[name].items():
        if value is not None and isinstance(values, Mapping) and values.get(field, value) is None:
            _refuse(where, field, f"a value, such as {value}", None, "leave it out for that value")


def check_read(optimizer: Optimizer, where: str) -> None:
    """Refuse a value in a field that the optimizer does not read; of a new recipe, for older ones were recorded with such.

    Raises:
        UsageError: which field.
    """
    usual = Optimizer()
    for name in sorted(UNREAD.get(optimizer.name, frozenset())):
        value, default = getattr(optimizer, name), getattr(usual, name)
        if value != default:
            _refuse(where, name, f"{default}: {optimizer.name} does not read it", value, "leave it out")


def check_optimizer(recipe: Any, where: str) -> None:
    """Refuse fields of another optimizer, and an optimizer that the rest of the recipe cannot have.

    Raises:
        UsageError: which field, and what it would have to be.
    """
    optimizer, own = recipe.optimizer, OWN[recipe.optimizer.name]
    others = ((name, getattr(optimizer, name)) for name in sorted(foreign(optimizer.name)))
    for name, value in others:
        if value is not None:
            owners = " or ".join(one for one, fields in OWN.items() if name in fields)
            _refuse(where, name, f"null: {optimizer.name} has none", value, f"drop it, or choose name={owners}")
    for name, value in own.items():
        if value is not None and getattr(optimizer, name) is None:
            _refuse(where, name, f"a value, such as {value}", None, f"compose it with optimizer={optimizer.name}")
    if optimizer.elementwise:
        return
    profile, model = recipe.arithmetic.profile, recipe.model
    if profile != "exact":
        expected = (
            f"{' or '.join(ELEMENTWISE)}: under profile {profile} nothing fixes the order of sums across a tensor"
        )
        _refuse(where, "name", expected, optimizer.name, "train with profile=exact")
    if recipe.lora is not None:
        _refuse(
            where, "name", f"{' or '.join(ELEMENTWISE)}, where lora is trained", optimizer.name, "take optimizer=adamw"
        )
    if optimizer.name in ("muonh", "adamh") and optimizer.weight_decay:
        expected = f"0.0: {optimizer.name} keeps the norm of every matrix and has no decay"
        _refuse(where, "weight_decay", expected, optimizer.weight_decay, "set it to 0.0")
    if optimizer.name == "muon" and not optimizer.use_kimi_scaling and model.architecture == "gpt2":
        expected = "true of a GPT-2, whose matrices have their inputs first"
        _refuse(where, "use_kimi_scaling", expected, False, "set it to true")


def _refuse(where: str, name: str, expected: str, found: object, cure: str) -> None:
    raise UsageError(
        "settings that do not go together",
        where=f"{where}: optimizer.{name}",
        expected=expected,
        found="null" if found is None else str(found).lower() if isinstance(found, bool) else str(found),
        cure=cure,
    )
