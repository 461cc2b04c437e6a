"""A plan: steps in an order in which each has its inputs, and the identities that decide what must be executed.

A step's identity is the canonical digest of what its bits depend on: its part of the recipe (seeds included), the
content digests of its inputs, the code that it executes, and the locked dependencies. Equal identities must give
equal bits, so a recorded result may be taken over.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ledger import canonical_digest
from marin.errors import UsageError
from marin.execution.step import StepDefinition
from marin.provenance.code import files_digest, lock_digest
from marin.recipe.schema import Recipe, digest, plain


@dataclass(frozen=True)
class Plan:
    """Named steps, each after the steps that it takes its inputs from. ``pinned``: the artifacts, by step, that an
    experiment said stand for what these steps would make."""

    name: str
    steps: tuple[StepDefinition, ...]
    pinned: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for step in self.steps:
            if step.name in seen:
                raise UsageError(
                    "step is there twice", where=f"plan {self.name}", found=step.name, cure="rename one of them"
                )
            missing = [name for name in step.inputs if name not in seen]
            if missing:
                raise UsageError(
                    "step has an input that comes later or never",
                    where=f"plan {self.name}: {step.name}",
                    expected=", ".join(sorted(seen)) or "no inputs",
                    found=", ".join(missing),
                    cure="order the steps so that inputs come first",
                )
            seen.add(step.name)

    def step(self, name: str) -> StepDefinition:
        """The step of this name; :class:`UsageError` with the nearest name otherwise."""
        for step in self.steps:
            if step.name == name:
                return step
        names = [step.name for step in self.steps]
        near = difflib.get_close_matches(name, names, n=1)
        raise UsageError(
            "unknown stage",
            where=name,
            expected=", ".join(names),
            found=name,
            cure=f"did you mean {near[0]}?" if near else "name one of these",
        )

    def before(self, name: str) -> tuple[StepDefinition, ...]:
        """The steps that ``name`` depends on, directly or through others, in the plan's order."""
        wanted = set(self.step(name).inputs)
        for step in reversed(self.steps):
            if step.name in wanted:
                wanted.update(step.inputs)
        return tuple(step for step in self.steps if step.name in wanted)


@dataclass(frozen=True)
class CodeIdentity:
    """What executes: a digest of the code of each step, and of the locked dependencies."""

    steps: Mapping[str, str]
    lock: str


def code_identity(plan: Plan, folder: Path, recipe: Recipe) -> CodeIdentity:
    """Read the code of every step of ``plan`` below ``folder``, as ``recipe`` has it executed.

    Raises:
        NotInstalled: a plugin that the recipe names is not there.
    """
    files = {step.name: step.code(recipe) for step in plan.steps}
    known = {code: files_digest(folder, code) for code in set(files.values())}
    return CodeIdentity(steps={name: known[code] for name, code in files.items()}, lock=lock_digest(folder))


def plan_digest(plan: Plan, recipe: Recipe, code: CodeIdentity) -> str:
    """Digest of everything that decides the bits of the whole plan."""
    decided = {"code": dict(code.steps), "lock": code.lock, "plan": plan.name, "recipe": digest(recipe)}
    return canonical_digest(decided | ({"pinned": dict(plan.pinned)} if plan.pinned else {}))


def step_config(step: StepDefinition, recipe: Recipe) -> dict[str, Any]:
    """The part of the recipe that decides the step's bits, as JSON in the ledger's form."""
    value = plain(step.config(recipe))
    return value if isinstance(value, dict) else {"value": value}


def step_identity(step: StepDefinition, recipe: Recipe, inputs: Mapping[str, str], code: CodeIdentity) -> str:
    """Digest of everything that decides the bits of one step; ``inputs`` are content digests by step."""
    return identity_of(step.name, step_config(step, recipe), inputs, code.steps[step.name], code.lock)


def identity_of(name: str, config: Mapping[str, Any], inputs: Mapping[str, str], code: str, lock: str) -> str:
    """:func:`step_identity` from what ``step.started`` records of it, so that a verifier derives it again."""
    return canonical_digest({"code": code, "config": dict(config), "inputs": dict(inputs), "lock": lock, "step": name})
