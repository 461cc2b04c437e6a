"""The identity of a step: one digest of everything that decides what it makes, and nothing else.

    {"code": digest, "config": {...}, "inputs": {name: digest}, "lock": digest, "step": name of the function}

The same shape as :func:`marin.execution.plan.step_identity`, which a step of the pipeline keeps exactly: so what `dvc
repro` made is a hit for an experiment file, and the other way round. Seeds are the fields of the configuration that are
called so.

A configuration is encoded so that unequal values stay unequal: floats as ``{"float": hex}``, integers that JSON cannot
hold as ``{"int": digits}``, and a mapping that looks like one of these is refused.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Protocol

import msgspec

from ledger import canonical_digest
from marin.errors import UsageError
from marin.execution.plan import CodeIdentity, step_config, step_identity
from marin.execution.step import StepDefinition
from marin.graph.closure import closure_of
from marin.graph.step import Adopted, Step, Unidentified
from marin.provenance.code import code_folder, files_listing
from marin.recipe.schema import Recipe, plain

_EXACT = 2**53 - 1
_TAGS = ({"float"}, {"int"})


@dataclass(frozen=True)
class Identity:
    """What a step is: its parts, and their digest."""

    step: str
    code: str
    config: Mapping[str, Any]
    inputs: Mapping[str, str]
    lock: str
    digest: str


class Kind(Protocol):
    """What is asked of a step, whatever makes its output. :func:`kind_of` is the one place that tells them apart."""

    @property
    def name(self) -> str:
        """What the ledger calls it: the pipeline's name of a step, or the function's own."""

    @property
    def declared(self) -> str:
        """A digest, or a name, of what is called: what the graph declares before anything is executed.

        Raises:
            UsageError: it cannot be identified, or no other process could be given its configuration.
        """

    @property
    def listing(self) -> Sequence[tuple[str, str]]:
        """The files of its code, or parts of them, with their digests."""

    def config(self, recipe: Recipe | None = None) -> dict[str, Any]:
        """The identity fields of the configuration, in canonical form; of ``recipe`` where that is complete by now."""

    def identity(self, inputs: Mapping[str, str], code: CodeIdentity, recipe: Recipe | None) -> Identity:
        """What the step is, over the content of its inputs."""

    def code(self, code: CodeIdentity) -> str:
        """The digest of its code, as the identity has it."""


@dataclass(frozen=True)
class PipelineKind:
    """A :class:`Kind`: a step of the pipeline, identified as `marin stage` does: a result of either is a hit for the other."""

    definition: StepDefinition
    recipe: Recipe

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def declared(self) -> str:
        return f"stage {self.name}"

    @property
    def listing(self) -> Sequence[tuple[str, str]]:
        return [(name, digest) for name, digest in files_listing(code_folder(), self.definition.code(self.recipe))]

    def config(self, recipe: Recipe | None = None) -> dict[str, Any]:
        return step_config(self.definition, recipe or self.recipe)

    def identity(self, inputs: Mapping[str, str], code: CodeIdentity, recipe: Recipe | None) -> Identity:
        own = {key: inputs[key] for key in self.definition.inputs}
        digest = step_identity(self.definition, recipe or self.recipe, own, code)
        return Identity(self.name, self.code(code), self.config(recipe), own, code.lock, digest)

    def code(self, code: CodeIdentity) -> str:
        return code.steps[self.name]


@dataclass(frozen=True)
class FunctionKind:
    """A :class:`Kind`: a function of an experiment file, identified by what it reaches."""

    function: Callable[..., object]
    given: object
    where: str

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__name__", "step"))

    @property
    def declared(self) -> str:
        self.config()
        return closure_of(self.function).digest

    @property
    def listing(self) -> Sequence[tuple[str, str]]:
        return sorted(closure_of(self.function).parts.items())

    def config(self, recipe: Recipe | None = None) -> dict[str, Any]:
        value = encode(self.given, self.where)
        return value if isinstance(value, dict) else {"value": value}

    def identity(self, inputs: Mapping[str, str], code: CodeIdentity, recipe: Recipe | None) -> Identity:
        return _identity(self.name, self.code(code), self.config(), inputs, code.lock)

    def code(self, code: CodeIdentity) -> str:
        return closure_of(self.function).digest


@dataclass(frozen=True)
class AdoptedKind:
    """A :class:`Kind`: an artifact that was made elsewhere, its digest and no code."""

    adopted: Adopted

    name = "adopt"
    listing = ()

    @property
    def declared(self) -> str:
        return f"adopted {self.adopted.digest} ({self.adopted.kind})"

    def config(self, recipe: Recipe | None = None) -> dict[str, Any]:
        return {"digest": self.adopted.digest, "kind": self.adopted.kind}

    def identity(self, inputs: Mapping[str, str], code: CodeIdentity, recipe: Recipe | None) -> Identity:
        return _identity(self.name, self.code(code), self.config(), {}, canonical_digest("any"))

    def code(self, code: CodeIdentity) -> str:
        return canonical_digest("adopted")


def kind_of(step: Step) -> Kind:
    """The kind of a step."""
    if step.definition is not None:
        return PipelineKind(step.definition, step.config)
    if isinstance(step.fn, Adopted):
        return AdoptedKind(step.fn)
    assert callable(step.fn), "a step was checked when it was made"
    return FunctionKind(step.fn, step.config, f"step {step.name}: config")


def step_name(step: Step) -> str:
    """What the ledger calls the function of a step."""
    return kind_of(step).name


def identify(step: Step, inputs: Mapping[str, str], code: CodeIdentity, recipe: Recipe | None = None) -> Identity:
    """The identity of ``step`` over the content digests of its inputs. ``code`` knows the lock, and the code of the
    pipeline's steps; ``recipe`` is that of a step of the pipeline, with the state that its phase begins with.

    Raises:
        UsageError: configuration or function cannot be identified; the message says which value of which step.
    """
    return kind_of(step).identity(inputs, code, recipe)


def _identity(step: str, code: str, config: Mapping[str, Any], inputs: Mapping[str, str], lock: str) -> Identity:
    digest = canonical_digest({"code": code, "config": config, "inputs": dict(inputs), "lock": lock, "step": step})
    return Identity(step, code, config, dict(inputs), lock, digest)


def encode(value: Any, where: str) -> Any:
    """``value`` as canonical JSON builtins; :class:`UsageError` with its path for what has no content of its own."""
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -_EXACT <= value <= _EXACT else {"int": str(value)}
    if kind is float:
        if not math.isfinite(value):
            raise _no_identity(where, value, "a finite number", "leave it out")
        return {"float": value.hex()}
    if kind is dict or isinstance(value, Mapping):
        return _encode_mapping(value, where)
    if kind is list or kind is tuple:
        return [encode(item, f"{where}[{at}]") for at, item in enumerate(value) if not isinstance(item, Unidentified)]
    return _encode_object(value, where)


def _encode_mapping(value: Mapping[Any, Any], where: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, item in value.items():
        if type(key) is not str:
            raise _no_identity(where, key, "keys that are texts", "write the key as a text")
        if not isinstance(item, Unidentified):
            result[key] = encode(item, f"{where}.{key}")
    if set(result) in _TAGS:
        raise _no_identity(where, value, "a mapping that does not look like an encoded number", "rename the key")
    return result


def _encode_object(value: Any, where: str) -> Any:
    if isinstance(value, enum.Enum):
        return encode(value.value, where)
    if isinstance(value, msgspec.Struct):
        return {"type": type(value).__name__, "value": plain(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"type": type(value).__name__, "value": _encode_mapping(fields, where)}
    if isinstance(value, PurePath):
        raise _no_identity(
            where, value, "content", "a path is nobody's identity: make it an input, with adopt(...) if need be"
        )
    if isinstance(value, set | frozenset):
        raise _no_identity(where, value, "an order", "write a sorted list")
    if isinstance(value, Callable):  # type: ignore[arg-type]
        raise _no_identity(where, value, "a value", "functions are code: call it by name inside the step's function")
    raise _no_identity(
        where,
        value,
        "mappings, lists, texts, numbers, dataclasses or recipe sections",
        "it cannot be sent to another process nor be identified: build it inside the step's function",
    )


def _no_identity(where: str, value: Any, expected: str, cure: str) -> UsageError:
    return UsageError(
        "a configuration has no identity",
        where=where,
        expected=expected,
        found=f"{type(value).__name__} {str(value)[:60]}",
        cure=cure,
    )


def reveal(config: Any) -> Any:
    """A configuration as the function gets it: values that are not of the identity without their wrapping."""
    if isinstance(config, Unidentified):
        return config.value
    if type(config) is dict:
        return {key: reveal(item) for key, item in config.items()}
    if type(config) in (list, tuple):
        return type(config)(reveal(item) for item in config)
    return config
