"""Part of the verdict ``data``: documents that the recipe excludes, and the first train step that would have read them.

That they are blank follows from tokenizer and tokens having been made again by the recipe. What is left is where a
training was forked: the request says which train step of the other run was the first to read one of the documents. Where
the tokenizer is the same, the place of every token is, so that is derived here from this run's own tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from marin.data.exclusion import not_excluded_from, numbers
from marin.errors import UsageError
from marin.plugins.unlearning.kinds import forks_of
from marin.process.arithmetic import apply
from marin.verify.case import Case
from marin.verify.verdict import Verdict


def with_exclusion(case: Case, made: Verdict) -> Verdict:
    """``made``, the verdict on the data, and what is found of the documents that it excludes."""
    exclude = case.run.recipe.exclude
    if exclude is None or made.outcome == "FAIL":
        return made
    wrong = list(_wrong(case))
    if wrong:
        return Verdict("FAIL", tuple(wrong), executed=True)
    rest = not_excluded_from(case.run.recipe)
    lines = [
        f"exclusion: {len(exclude)} documents are blank in the tokens"
        + (f"; not established of {' and '.join(rest)}" if rest else ", and unread by the tokenizer")
    ]
    for fork in forks_of(case.record).values():
        if fork.request is not None and fork.fact.body.same_tokenizer:
            first, step = fork.request.body.first_use, fork.fact.body.step
            lines.append(f"exclusion: first read by train step {first}, forked before train step {step}")
    return Verdict(made.outcome, (*made.lines, *lines), made.executed)


def _wrong(case: Case) -> Iterator[str]:
    """Forks whose request does not say what the tokens say."""
    apply(case.run.recipe.arithmetic, case.execution)
    from marin.training.inspection.uses import as_documents, uses  # jax, after the contract is in force

    for index, fork in forks_of(case.record).items():
        if fork.request is None or not fork.fact.body.same_tokenizer:
            continue
        inputs = case.inputs(("corpus", "tokens"))
        asked = fork.request.body
        try:
            found = as_documents(numbers(inputs["corpus"], case.run.recipe.dataset, tuple(asked.documents)))
        except UsageError as error:
            yield f"unlearning: event {index}: {error}"
            continue
        recipe = msgspec.structs.replace(case.run.recipe, phase=None)
        steps = uses(recipe, inputs["tokens"] / "train", [(part, number) for _, part, number in found]).steps
        first = steps[0] if steps else None
        if first != asked.first_use or first < fork.fact.body.step:
            yield (
                f"unlearning: event {fork.request.index}: expected train step {first} as the first that read one "
                f"of the documents, found {asked.first_use}, and a fork before train step {fork.fact.body.step}"
            )
