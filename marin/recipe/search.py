"""A sweep that searches: Hydra's own sweeper plugin (Optuna) chooses values, someone else tries them.

    hydra/sweeper=optuna hydra.sweeper.n_trials=16 'optimizer.learning_rate=tag(log,interval(1e-4,1e-2))'

Hydra's words keep their meaning: ``interval``, ``choice``, ``range`` and ``tag(log, ...)`` span the space, and
``hydra.sweeper.…`` sets the sweeper and its sampler. What Hydra would do with a trial (start a job in a folder of its
own) is left out: a trial is the words of a recipe, and :func:`search` hands each batch of them to its caller. A
sampler without a seed gets seed 0, so that the same command makes the same trials; what the ledger has of them is
taken over.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import msgspec

from ledger import canonical_digest
from marin.errors import MissingEvidence, UsageError
from marin.recipe.composition import SPELT, override_of
from marin.recipe.section import Name

WORD = "hydra/sweeper="
DIRECTIONS: Mapping[str, Literal["lower", "higher"]] = {"minimize": "lower", "maximize": "higher"}
"""Hydra's words, and which way is better."""
Words = tuple[str, ...]
"""Of a command line: GROUP=NAME and KEY=VALUE."""
Try = Callable[[Sequence[Words], int], Sequence[float | None]]
"""The metric of each trial of a batch, whose first has this number; None: it failed."""


@dataclass(frozen=True)
class Plan:
    """A search as its words state it. ``space``: the words with several values, ``fixed`` the others of the recipe,
    ``settings`` those of Hydra; ``direction``: lower or higher is better."""

    space: Words
    fixed: Words
    settings: Words
    trials: int
    at_once: int
    sampler: str
    direction: Literal["lower", "higher"]
    name: str


def searches(arguments: Sequence[str]) -> bool:
    """Whether the words of a command line ask for a search."""
    return any(word.lstrip("+").startswith(WORD) for word in arguments)


def plan(arguments: Sequence[str], metric: str) -> Plan:
    """What the words of a command line ask for. The sweeper is asked for its first trials, so that what it refuses is refused
    before anything is trained.

    Raises:
        UsageError: they cannot be read, search a seed, span nothing, or nothing that the sweeper takes.
        MissingEvidence: the plugin is not installed.
    """
    if find_spec("hydra_plugins") is None or find_spec("hydra_plugins.hydra_optuna_sweeper") is None:
        raise MissingEvidence(
            "Hydra's plugin for Optuna is not installed",
            where="hydra/sweeper",
            expected="hydra-optuna-sweeper",
            found="no such package",
            cure="install the extra `train`",
        )
    # Hydra's own words configure the sweeper, words with several values span the space, and the rest holds for every trial.
    settings = tuple(word.lstrip("+") for word in arguments if word.lstrip("+").startswith(("hydra/", "hydra.")))
    others = [word for word in arguments if word.lstrip("+") not in settings]
    space = tuple(word for word in others if override_of(word).is_sweep_override())
    config = _configured(settings).hydra.sweeper
    if "sampler" not in config:
        raise UsageError(
            "not a sweeper that searches",
            where="hydra/sweeper",
            expected="optuna",
            found=str(config.get("_target_")).rpartition(".")[2],
            cure=f"write {WORD}optuna",
        )
    # The best of many seeds is chance, and would be registered as if it were a finding.
    keys = (word.lstrip("+").partition("=")[0] for word in space)
    if any(SPELT.get(key, key) == "seed" for key in keys):
        raise a_seed("a search for the luckiest seed")
    if not space and not config.params:
        raise UsageError(
            "nothing to search",
            where=WORD.rstrip("="),
            expected="a key with several values, such as optimizer.learning_rate=interval(1e-4,1e-2)",
            found=" ".join(others)[:200] or "no key",
            cure="name the space; quote it for the shell",
        )
    if config.storage is not None:
        raise UsageError(
            "trials that the ledger does not have",
            where="hydra.sweeper.storage",
            expected="null: the same command goes on by itself, since what the ledger has of it is a hit",
            found=str(config.storage)[:80],
            cure="leave it out",
        )
    for count in ("n_trials", "n_jobs"):
        if config[count] < 1:
            raise UsageError(
                "a search without trials",
                where=f"hydra.sweeper.{count}",
                expected="1 or more",
                found=str(config[count]),
                cure="give the number of trials",
            )
    if not 0 <= config.max_failure_rate <= 1:
        raise UsageError(
            "not a share of trials",
            where="hydra.sweeper.max_failure_rate",
            expected="0.0 to 1.0",
            found=str(config.max_failure_rate),
            cure="give a share",
        )
    # The sweeper takes bounds that it cannot draw from, and would say so in the middle of the search.
    for word in space:
        _check_bounds(word)
    direction = str(getattr(config.direction, "name", config.direction))
    if direction not in DIRECTIONS:
        raise UsageError(
            "a search has one metric",
            where="hydra.sweeper.direction",
            expected=" or ".join(DIRECTIONS),
            found=direction[:80],
            cure="name one of them",
        )
    # The same command names the same experiment, so that a search which was broken off goes on.
    sampler = str(config.sampler.get("_target_")).rpartition(".")[2]
    if config.sampler.get("seed") is not None:
        sampler += f", seed {config.sampler.seed}"
    digest = canonical_digest([sorted(arguments), metric]).removeprefix("sha256:")
    name = str(config.study_name or f"search_{digest[:8]}")
    try:
        msgspec.convert(name, Name)
    except msgspec.ValidationError:
        raise UsageError(
            "not a name of an experiment",
            where="hydra.sweeper.study_name",
            expected="up to 64 letters, digits, -, _ and .",
            found=repr(name[:80]),
            cure="call the study so, or leave it out",
        ) from None
    asked = Plan(
        space,
        tuple(word for word in others if word not in space),
        settings,
        int(config.n_trials),
        int(config.n_jobs),
        sampler,
        DIRECTIONS[direction],
        name,
    )
    first_trial(asked)
    return asked


def a_seed(found: str) -> UsageError:
    """The error of a search over seeds."""
    return UsageError(
        "a seed is no hyperparameter",
        where="seed",
        expected="values that make a model better, all with one seed",
        found=found,
        cure="give one seed; compare the best trials over several seeds in an experiment",
    )


def first_trial(asked: Plan) -> Words:
    """The trial that the sweeper begins with, before it knows a result.

    Raises:
        UsageError: the sweeper refuses the space, or its own settings.
    """
    trials: list[Words] = []

    def enough(batch: Sequence[Words], first: int) -> Sequence[float | None]:
        trials.extend(batch)
        raise _Enough

    with suppress(_Enough):
        search(asked, enough)
    return trials[0]


def search(asked: Plan, attempt: Try) -> None:
    """Have Hydra's sweeper choose values, batch after batch, and ``attempt`` try them.

    Raises:
        UsageError: the sweeper refuses the space, or too many trials failed (``hydra.sweeper.max_failure_rate``).
    """
    from hydra.core.plugins import Plugins
    from hydra.types import HydraContext
    from optuna.logging import set_verbosity

    set_verbosity(logging.WARNING)
    config = copy.deepcopy(_configured(asked.settings))
    trials = _Trials(attempt)
    with TemporaryDirectory(prefix="marin-search-") as folder:
        config.hydra.sweep.dir = folder  # where the sweeper leaves what it found best
        context: Any = HydraContext(config_loader=None, callbacks=None)
        try:
            sweeper: Any = Plugins.instance().instantiate_sweeper(
                hydra_context=context, task_function=lambda _: None, config=config
            )
            sweeper.sweeper.launcher = trials
            sweeper.sweep([*asked.fixed, *asked.space])
        except Exception as error:  # of the plugin, Optuna or a sampler: they raise whatever they like
            if error is trials.stopped_by:
                raise
            raise UsageError(
                "the search ended",
                where=WORD.rstrip("="),
                expected="a space that the sweeper takes, and trials that end well",
                found=(" ".join(str(error).split()) or type(error).__name__)[:300],
                cure="correct what it names; hydra.sweeper.max_failure_rate=1.0 lets trials fail",
            ) from None


class _Enough(Exception):
    """The first trials are known, and no more are wanted."""


class _Failed(Exception):
    """A trial without a number."""


class _Trials:
    """In the place of Hydra's launcher, which would start a job for each trial."""

    def __init__(self, attempt: Try) -> None:
        self._attempt = attempt
        self.stopped_by: Exception | None = None

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[Any]:
        """One answer for each trial, in order."""
        from hydra.core.utils import JobReturn, JobStatus

        try:
            values = self._attempt([tuple(words) for words in job_overrides], initial_job_idx)
        except Exception as error:  # not the sweeper's
            self.stopped_by = error
            raise
        found = []
        for words, value in zip(job_overrides, values, strict=True):
            status = JobStatus.FAILED if value is None else JobStatus.COMPLETED
            told = JobReturn(overrides=list(words), status=status)
            told.return_value = _Failed(f"the trial {' '.join(words)} failed") if value is None else value
            found.append(told)
        return found


def _check_bounds(word: str) -> None:
    """Refuse what the sweeper takes and cannot draw from.

    Raises:
        UsageError: a bound is not a number, or a pattern stands where values do.
    """
    from hydra.core.override_parser.types import Glob, IntervalSweep, RangeSweep

    value = override_of(word).value()
    bounds: tuple[Any, ...] = ()
    if isinstance(value, IntervalSweep):
        bounds = (value.start, value.end)
    elif isinstance(value, RangeSweep):
        bounds = (value.start, value.stop, value.step)
    if odd := [bound for bound in bounds if not math.isfinite(bound)]:
        raise UsageError(
            "a space without bounds",
            where=f"command line: {word[:100]}",
            expected="finite numbers",
            found=str(odd[0]),
            cure="give the lowest and the highest value",
        )
    if isinstance(value, Glob):
        raise UsageError(
            "a search takes no pattern",
            where=f"command line: {word[:100]}",
            expected="choice(NAME,NAME)",
            found="glob(...)",
            cure="name the members",
        )


@lru_cache(maxsize=8)
def _configured(settings: Words) -> Any:
    """Hydra's own configuration, its sweeper as ``settings`` say; not to be changed."""
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import open_dict
    from omegaconf.errors import OmegaConfBaseException

    try:
        with (
            TemporaryDirectory(prefix="marin-search-") as empty,
            initialize_config_dir(str(Path(empty).resolve()), version_base=None),
        ):
            config = compose(overrides=list(settings), return_hydra_config=True)
    except (HydraException, OmegaConfBaseException, OSError, ValueError, AssertionError, AttributeError) as error:
        raise UsageError(
            "the search cannot be read",
            where=" ".join(settings)[:200],
            expected="hydra/sweeper=optuna and settings of that sweeper",
            found=" ".join(str(error).split())[:300],
            cure="hydra.cc/docs/plugins/optuna_sweeper has them",
        ) from None
    with open_dict(config):
        sampler = config.hydra.sweeper.get("sampler")
        if sampler is not None and "seed" in sampler and sampler.seed is None:
            sampler.seed = 0
    return config
