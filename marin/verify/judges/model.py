"""The verdict ``model``: evaluation and export follow from the last state."""

from __future__ import annotations

from collections.abc import Collection

from marin.pipeline.stages import PIPELINE
from marin.process.arithmetic import apply
from marin.process.progress import bar
from marin.record.events import MODEL_STEPS
from marin.verify.case import Case
from marin.verify.judges.data import compare_output
from marin.verify.verdict import Verdict


def judge_model(case: Case, planned: Collection[str]) -> Verdict:
    """Evaluate and export again, from a state whose bytes are proven to be the recorded one.

    Args:
        planned: steps that the run says it has; one that it planned and did not make is missing evidence.
    """
    steps = [name for name in MODEL_STEPS if name in case.run.steps or name in planned]
    if not steps:
        return Verdict("NOT_RUN", ("the run has no evaluation and no export",))
    state = case.run.output("train")
    with bar("model", len(steps)) as progress:
        needed = {name for step in steps for name in PIPELINE.step(step).inputs}
        inputs = case.inputs(sorted(needed))
        check_machine(case)
        rehearsal = case.rehearsal()
        for done, name in enumerate(steps):
            case.run.output(name)
            step = PIPELINE.step(name)
            folder, result = rehearsal.execute(step, {key: inputs[key] for key in step.inputs})
            if wrong := compare_output(case, name, folder, result):
                return Verdict("FAIL", tuple(wrong), executed=True)
            progress(done + 1, name)
    return Verdict("PASS", (f"state {state.digest}", *(f"{name} {case.run.output(name).digest}" for name in steps)))


def check_machine(case: Case) -> None:
    """Raises ``Unsupported`` where the contract can not be honoured, before anything is computed that would differ."""
    apply(case.run.recipe.arithmetic, case.execution)
    from marin.training.runtime import canary, profile  # jax, after the contract is in force

    canary.check(case.run.recipe.arithmetic)
    recorded = case.run.training[-1].body.program if case.run.training else {}
    profile.check_recorded(case.run.recipe.arithmetic, recorded.get("jaxlib"))
