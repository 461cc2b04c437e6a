"""The runs of an experiment held against its registration: which count, what deviates, what the numbers bear out.

Pure: a registration and runs in, a :class:`Findings` out. The rules, in the order in which they are applied:

1. A run belongs to an arm when its recipe without the seed has the arm's digest. Of several runs of one arm and seed the
   first with a result counts, and the others are shown; where they disagree, that is a deviation.
2. A result is as old as the event that first recorded it, or as the beginning of the training of the model that it was
   measured on, no matter who takes it over later. Results older than the registration are known results: they are analysed, and
   what comes of it is exploratory.
3. Confirmatory means: the newest registration precedes every result that counts, every arm has every seed, no seed and no
   arm was added, all runs executed the same code but for files that an arm's recipe alone asks for, the cap was kept.
   Everything else is a deviation and is listed.
4. All arms and all metrics are shown, whatever came out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Literal

from marin.errors import MissingEvidence
from marin.history.changes import read_listing
from marin.history.run import Fact, Run
from marin.history.runs import load
from marin.kinds.families.experiment import ExperimentRegistered
from marin.plugins.lab.statistics import Comparison, Summary, compare, summary, with_holm
from marin.preregistration.arms import arm_of, registrations, runs_with_recipes
from marin.preregistration.registration import as_alternative
from marin.recipe.cost import work_of
from marin.record.events import StepFailed
from marin.record.root import Root

Verdict = Literal["confirmatory", "exploratory", "incomplete"]
FilesOf = Callable[[str], Mapping[str, str]]
"""Code files and their digests by the digest of a step's code; empty where nobody kept them."""


@dataclass(frozen=True)
class Result:
    """One run of an arm: its metrics as ``step.name``, and since which event each could be known. ``seconds`` and
    ``flops`` are of the steps that it executed itself; ``code`` digests by step, and the lock."""

    run: str
    arm: str
    seed: int
    metrics: Mapping[str, float]
    recorded: Mapping[str, int]
    status: str
    seconds: float
    code: Mapping[str, str]
    cites: str
    failure: str = ""
    flops: float = 0.0


@dataclass(frozen=True)
class Findings:
    """What an experiment came to. ``comparisons``: the primary metric's first, each family with its own correction.
    ``supported``: whether the primary comparison of some arm is significant in the direction that is better; None where
    nothing could be tested. ``deviations`` bar "confirmatory"; ``notes`` do not."""

    registration: Fact[ExperimentRegistered]
    verdict: Verdict
    supported: bool | None
    results: tuple[Result, ...]
    arms: Mapping[str, Mapping[str, Summary | None]]
    primary: tuple[Comparison, ...]
    secondary: tuple[Comparison, ...]
    deviations: tuple[str, ...]
    notes: tuple[str, ...]
    values: Mapping[str, Mapping[str, Mapping[int, float]]] = field(default_factory=dict)
    """Metric -> arm -> seed -> value, of the runs that count."""

    @property
    def metrics(self) -> list[str]:
        """The primary metric and the secondary ones, by name."""
        body = self.registration.body
        return [body.primary["name"], *(item["name"] for item in body.secondary)]


def examine(root: Root, experiment: str) -> Findings:
    """Gather the runs of ``experiment`` from the ledger and analyse them.

    Raises:
        MissingEvidence: it is not registered.
    """
    history = root.history()
    known = list(registrations(history, experiment))
    if not known:
        raise MissingEvidence(
            "the experiment is not registered",
            where=experiment,
            expected="experiment.registered/v1",
            found="none",
            cure="register it with `marin experiment register FILE`",
        )
    results, before = list[Result](), list[Result]()
    for started, recipe in runs_with_recipes(history):
        arms = [arm_of(fact.body, recipe, started.body.pipeline) for fact in reversed(known)]
        arm = next((one for one in arms if one is not None), None)
        if arm is not None and recipe.seed is not None:
            found = results if arms[0] is not None else before
            found.append(_result(load(history, started.body.run), arm, recipe.seed))
    return analyse(known, results, before, partial(read_listing, root.store()))


def _result(view: Run, arm: str, seed: int) -> Result:
    metrics, recorded = {}, {}
    for step, result in view.steps.items():
        # Anyone who has measured nothing yet and has states of the model already could have known.
        begun = [fact.index for fact in view.training] if step == "train" or "train" in result.inputs else []
        if "train" in result.inputs and "train" in view.steps:
            begun.append(view.steps["train"].completed_at)
        at = min([result.completed_at, *begun])
        for name, value in result.metrics.items():
            metrics[f"{step}.{name}"], recorded[f"{step}.{name}"] = value, at
    executed = [step for step in view.steps.values() if not step.cached]
    failures: Sequence[Fact[StepFailed]] = view.failures
    return Result(
        run=view.run,
        arm=arm,
        seed=seed,
        metrics=metrics,
        recorded=recorded,
        status=view.status,
        seconds=sum(step.seconds for step in executed),
        code=_code(view),
        cites=view.started.body.experiment,
        failure=failures[-1].body.error if failures and view.status == "failed" else "",
        flops=sum(work_of(step.step, view.recipe).flops for step in executed),
    )


def _code(view: Run) -> dict[str, str]:
    steps = view.started.body.code.get("steps", {})
    lock = str(view.started.body.environment.get("lock", ""))
    return {"lock": lock} | {str(name): str(value) for name, value in steps.items()}


def analyse(
    known: Sequence[Fact[ExperimentRegistered]],
    results: Iterable[Result],
    before: Iterable[Result] = (),
    files_of: FilesOf = lambda code: {},
) -> Findings:
    """The findings for the newest of the registrations ``known`` (the oldest first). ``before``: results of arms that only
    earlier ones have."""
    registration = known[-1]
    body = registration.body
    every = list(results)
    # What departs from the registration is collected first, for each of it makes the verdict exploratory.
    counted, deviations, notes = _counted(registration, every)
    deviations += _amendments(known, [*every, *before])
    deviations += ["a search states no hypothesis that its trials could confirm"] * (not body.file)
    deviations += _code_differs(counted.values(), files_of)
    deviations += _over_cap(body, every)
    seeds = [int(seed) for seed in body.seeds]
    missing = [(arm, seed) for arm in body.arms for seed in seeds if (arm, seed) not in counted]
    deviations += [f"arm {arm}, seed {seed}: no result in {body.primary['name']}" for arm, seed in missing]
    # Only results that count are tested, paired by seed; one without the metric is no value and no zero.
    values = {
        metric: {
            arm: {
                seed: counted[arm, seed].metrics[metric]
                for seed in seeds
                if (arm, seed) in counted and metric in counted[arm, seed].metrics
            }
            for arm in body.arms
        }
        for metric in (body.primary["name"], *(item["name"] for item in body.secondary))
    }
    primary = _family(body, [body.primary], values)
    secondary = _family(body, body.secondary, values)
    verdict: Verdict = "incomplete" if missing else "exploratory" if deviations else "confirmatory"
    # Without a test there is no answer: neither yes nor no.
    tested = [item for item in primary if item.p_holm is not None]
    supported = (
        any(
            item.p_holm is not None and item.p_holm <= body.alpha and _better(item, body.primary["direction"])
            for item in tested
        )
        if tested
        else None
    )
    arms = {
        metric: {arm: summary(list(by_seed.values())) if by_seed else None for arm, by_seed in of_arm.items()}
        for metric, of_arm in values.items()
    }
    notes += [
        f"{item.arm} against {item.baseline}, {item.metric}: {item.pairs} pairs cannot give p <= {body.alpha:g} "
        f"(smallest possible {item.smallest_p:g})"
        for item in primary
        if item.smallest_p is not None and item.smallest_p > body.alpha
    ]
    return Findings(
        registration,
        verdict,
        supported,
        tuple(every),
        arms,
        tuple(primary),
        tuple(secondary),
        tuple(deviations),
        tuple(notes),
        values,
    )


def _counted(
    registration: Fact[ExperimentRegistered], results: Sequence[Result]
) -> tuple[dict[tuple[str, int], Result], list[str], list[str]]:
    """The result that counts for each arm and seed, what deviates among the others, and what is merely worth saying."""
    body, primary = registration.body, registration.body.primary["name"]
    counted: dict[tuple[str, int], Result] = {}
    deviations: list[str] = []
    notes: list[str] = []
    added: dict[str, set[int]] = {}
    for result in results:
        if str(result.seed) not in body.seeds:
            added.setdefault(result.arm, set()).add(result.seed)
        elif primary not in result.metrics:
            if result.failure:
                notes.append(f"run {result.run} (arm {result.arm}, seed {result.seed}) failed: {result.failure}")
        elif (first := counted.get((result.arm, result.seed))) is None:
            counted[result.arm, result.seed] = result
        elif first.metrics[primary] != result.metrics[primary]:
            deviations.append(
                f"arm {result.arm}, seed {result.seed}: run {result.run} gave {result.metrics[primary]:.6g} in "
                f"{primary}, run {first.run} {first.metrics[primary]:.6g}; the first counts"
            )
    deviations += [
        f"arm {arm}: seeds {', '.join(map(str, sorted(seeds)))} were run and are not registered"
        for arm, seeds in added.items()
    ]
    for result in counted.values():
        at = result.recorded[primary]
        if at < registration.index:
            deviations.append(
                f"arm {result.arm}, seed {result.seed}: event {at} recorded the result, or began its training, before the "
                f"registration (event {registration.index})"
            )
        elif result.cites != body.registration:
            notes.append(f"run {result.run} (arm {result.arm}, seed {result.seed}) does not cite the registration")
    return counted, deviations, notes


def _amendments(known: Sequence[Fact[ExperimentRegistered]], results: Sequence[Result]) -> list[str]:
    """Registrations that came after results of the experiment as it was registered before."""
    found = []
    for earlier, later in pairwise(known):
        primary = earlier.body.primary["name"]
        between = [result for result in results if result.recorded.get(primary, later.index) < later.index]
        if between:
            found.append(
                f"registered again at event {later.index} when {len(between)} results of the registration at event "
                f"{earlier.index} were known"
            )
    return found


def _code_differs(counted: Collection[Result], files_of: FilesOf) -> list[str]:
    """Steps that the runs executed in several versions; one that a run lacks is not a version. Between arms these are several
    versions of one file: what one recipe asks for and the other does not, as it does for an objective, is what the arms are."""
    deviations = []
    for step in sorted({step for one in counted for step in one.code}):
        executed = [(one.arm, one.code[step]) for one in counted if step in one.code]
        runs = Counter(code for _, code in executed)
        listed = [files_of(code) for code in runs]
        versions = Counter(file for file, _ in {item for one in listed for item in one.items()})
        several = [file for file, count in sorted(versions.items()) if count > 1]
        one_arm = len(set(executed)) > len({arm for arm, _ in executed})
        if len(runs) > 1 and (several or one_arm or not all(listed)):
            deviations.append(
                f"{step}: the runs executed {len(runs)} versions of the code ({', '.join(map(str, sorted(runs.values())))} "
                f"runs): arms may differ by it{': ' * bool(several)}{', '.join(several[:3])}"
            )
    return deviations


def spent(results: Sequence[Result]) -> dict[str, float]:
    """What the runs executed, over all of them; the price is an estimate beforehand and no fact afterwards."""
    return {"seconds": sum(result.seconds for result in results), "flops": sum(result.flops for result in results)}


def _over_cap(body: ExperimentRegistered, results: Sequence[Result]) -> list[str]:
    return [
        f"the cost cap of {cap:.4g} {name} was passed: {value:.4g} were executed"
        for name, value in spent(results).items()
        if (cap := body.cost_cap.get(name)) is not None and value > cap
    ]


def _family(
    body: ExperimentRegistered,
    metrics: Sequence[Mapping[str, str]],
    values: Mapping[str, Mapping[str, Mapping[int, float]]],
) -> list[Comparison]:
    """Every other arm against the baseline in each of these metrics, corrected together."""
    found: list[Comparison] = []
    for metric in metrics:
        of_arm = values[metric["name"]]
        others = [arm for arm in body.arms if arm != body.baseline and of_arm[arm] and of_arm[body.baseline]]
        found += [
            compare(
                metric["name"],
                (body.baseline, of_arm[body.baseline]),
                (arm, of_arm[arm]),
                test="welch" if body.test == "welch" else "paired",
                alternative=as_alternative(metric["direction"], body.alternative),
            )
            for arm in others
        ]
    return with_holm(found)


def _better(item: Comparison, direction: str) -> bool:
    return item.difference < 0 if direction == "lower" else item.difference > 0


def conclusion(findings: Findings) -> str:
    """The result in one sentence."""
    body = findings.registration.body
    if findings.verdict == "incomplete":
        return "Incomplete: not every arm has every seed."
    if findings.supported is None:
        return f"Nothing could be tested in {body.primary['name']}."
    held = [
        item.arm
        for item in findings.primary
        if item.p_holm is not None and item.p_holm <= body.alpha and _better(item, body.primary["direction"])
    ]
    what = (
        f"{body.primary['name']} of {', '.join(held)} is better than that of {body.baseline}"
        if held
        else f"no arm is shown to be better than {body.baseline} in {body.primary['name']}"
    )
    blind = not held and all(item.smallest_p is not None and item.smallest_p > body.alpha for item in findings.primary)
    limit = "; with so few pairs no outcome could have shown it" if blind else ""
    return f"{findings.verdict.capitalize()}: {what} (alpha {body.alpha:g}, after Holm){limit}."
