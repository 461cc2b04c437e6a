"""What a run recorded of the programs of its train step, against what the installed code derives from its recipe.

Under profile ``exact`` a program is a definition of every bit (docs/exact.md), and its digest enters no compiler, no version and
no code of this project. Where the digests are equal, the same is computed, by any compiler: other bits contradict
the record, and a beginning that names other code, another lock or other versions excuses nothing. Where they differ, another
function was executed here, and its bits say nothing about the run's unless they are the same. What is around a program
(which tokens a step sees, masks, adapters, documents that are left out) is code, and is excused as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from marin.recipe.schema import Recipe
from marin.verify.segments.compare import INITIAL, MEASURED, TOKENS, Divergence, programs

STEP = ("gradient", "update")
EXACT = (*STEP, "initial", "blank")
"""Names of programs that the profile defines; ``NAME here`` is the text that one compiler was given."""

First = Callable[[Sequence[str]], Mapping[str, str]]
"""Given names of programs that differ: where each does first, as far as the recorded one is here."""


def lines(recorded: Mapping[str, object], present: Mapping[str, object], first: First) -> list[str]:
    """What of the programs differs, for people. Under ``exact`` that is told apart from how they are computed."""
    found = programs(recorded, present)
    if present.get("profile") != "exact":
        return [f"different program: {line}" for line in found]
    theirs, ours = digests(recorded), digests(present)
    differing = [name for name in EXACT if name in theirs and theirs[name] != ours.get(name)]
    where = first(differing) if differing else {}
    told = [
        f"different program: {name}: recorded {theirs[name]}, here {ours.get(name)}; {where.get(name, NOT_AT_HAND)}"
        for name in differing
    ]
    how = [line for line in found if not line.startswith("functions.")]
    if how:
        same = [name for name in EXACT if name in theirs and name not in differing]
        also = f"; the same programs: {', '.join(same)}" if same else ""
        told.append(f"computed otherwise, which decides no bit: {', '.join(how)}{also}")
    return told


LIBRARIES = {"jax": "jax", "jaxlib": "jaxlib", "levanter": "marin-levanter"}
"""Distributions by the names that a recorded program has for their versions."""


def other_versions(recorded: Mapping[str, object], profile: str, installed: Mapping[str, str]) -> list[str]:
    """:func:`lines` of what is known without executing anything: ``installed`` versions, by distribution."""
    said = {name: recorded[name] for name in LIBRARIES if name in recorded}
    present = {name: installed.get(LIBRARIES[name]) for name in LIBRARIES}
    return lines(said | {"profile": profile}, present | {"profile": profile}, lambda _: {}) if recorded else []


NOT_AT_HAND = "the recorded one is not in programs/ of this root, where `marin publish` writes it"


def digests(program: Mapping[str, object]) -> dict[str, str]:
    """Those of the programs that the profile defines, by name."""
    functions = program.get("functions")
    if not isinstance(functions, Mapping):
        return {}
    return {name: str(functions[name]) for name in EXACT if name in functions}


def defined(
    divergence: Divergence,
    recorded: Mapping[str, object],
    present: Mapping[str, object],
    recipe: Recipe,
    *,
    masked: bool,
) -> bool:
    """Whether a difference that execution found is one of results that the recorded programs define, whatever executed them.
    ``masked``: the tokens have a loss mask."""
    if recipe.arithmetic.profile != "exact" or recipe.lora is not None or recipe.exclude is not None:
        return False
    if divergence.explanation == TOKENS or divergence.explanation.endswith(MEASURED):
        return False
    first = divergence.explanation == INITIAL
    if recipe.objective is not None and not first:  # what is drawn, rewarded and learned of completions is code
        return False
    if (first and (recipe.initial is not None or recipe.phase is not None)) or (masked and not first):
        return False
    theirs, ours = digests(recorded), digests(present)
    return all(name in theirs and theirs[name] == ours.get(name) for name in (("initial",) if first else STEP))
