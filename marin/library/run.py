"""One run as an object: what it was, what came of it, what it was made of, and its model."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin.history.names import data_of, model_of
from marin.history.run import Run as RunView
from marin.library.page import Page
from marin.preregistration.called import name_in
from marin.provenance.extras import DRAWING, need
from marin.provenance.plugins import load_plugin
from marin.recipe.schema import Recipe
from marin.record import outputs
from marin.record.root import Root
from marin.record.verdicts import NAMES

if TYPE_CHECKING:
    import pandas

    from marin.library.checking import Checked
    from marin.training.inspection.batch import Batch


class Metrics(dict[str, float]):
    """Numbers by name; of an unknown name the nearest is said."""

    def __missing__(self, name: str) -> float:
        """Raises KeyError."""
        near = difflib.get_close_matches(name, self, n=1, cutoff=0.4)
        raise KeyError(f"no metric {name}; " + (f"did you mean {near[0]}?" if near else "this run has none like it"))


class Run:
    """A run of a root. It is as its events say at the moment when it was asked for."""

    def __init__(self, root: Root, view: RunView) -> None:
        self._root, self._view = root, view

    @property
    def id(self) -> str:
        """The id that every command takes."""
        return self._view.run

    @property
    def name(self) -> str:
        """What every list calls it: by what sets it apart in its sweep, by its arm, or by model and seed, then the id:
        ``llama-4x128-seed0 · juzu7wlh``."""
        return name_in(self._root.history(), self._view)

    @property
    def model_name(self) -> str:
        """Such as ``llama-4x128``."""
        return model_of(self._view.started.body.recipe)

    @property
    def data_name(self) -> str:
        """The name of its data set."""
        return data_of(self._view.started.body.recipe)

    @property
    def status(self) -> str:
        """``completed``, ``failed``, ``interrupted`` or ``open``."""
        return self._view.status

    @property
    def verified(self) -> str:
        """Such as ``PASS 2026-11-21``; ``never`` where nobody has replayed it."""
        return self._view.verified

    @property
    def description(self) -> str:
        """What a user said of it (`marin run RUN describe TEXT`)."""
        return self._view.labels.description

    @property
    def tags(self) -> dict[str, str]:
        """Its tags by name (`marin run RUN tag NAME=VALUE`)."""
        return dict(self._view.labels.tags)

    @property
    def recipe(self) -> Recipe:
        """Everything that decides its bits. Raises UsageError where this version cannot read it."""
        return self._view.recipe

    @property
    def metrics(self) -> Metrics:
        """All numbers of its steps by name, as ``evaluate.perplexity``."""
        return Metrics(self._view.metrics)

    @property
    def losses(self) -> pandas.Series:
        """The loss of each recorded train step, float64 (what the ledger has exactly), by train step. Raises NotInstalled
        without pandas."""
        need("pandas")
        import pandas

        found = self._view.losses
        steps = sorted(found)
        index = pandas.Index(steps, name="train step", dtype="int64")
        return pandas.Series([found[step] for step in steps], index=index, name="loss", dtype="float64")

    @property
    def outputs(self) -> dict[str, str]:
        """What each step made, by the digest of its content."""
        return {step: result.output.digest for step, result in self._view.steps.items()}

    def report(self) -> Page:
        """What was run, with which result and which verdicts."""
        return self._page("report.html", f"Report of run {self.id}")

    def lineage(self) -> Page:
        """What it was made of, back to the raw data, with samples of the data."""
        need(*DRAWING)
        return self._page("lineage.html", f"Lineage of run {self.id}")

    def verification(self) -> Page:
        """What the newest replay found; raises MissingEvidence where nobody has replayed it."""
        return self._page("verification.html", f"Verification of run {self.id}")

    def batch(self, step: int) -> Batch:
        """What train step ``step`` saw: token ids, text and documents, with the digest that training recorded.

        Raises:
            UsageError: the run has no such train step.
            NotInstalled: the extra that trains is not installed.
        """
        need("jax", "levanter")
        from marin.training.inspection.batch import batch_of

        return batch_of(self._view, self._root.store(), step)

    def export(self, folder: str | Path) -> Path:
        """The model as a Hugging Face folder, every byte hashed on its way out of the store."""
        target = Path(folder)
        outputs.checkout(self._root.store(), self._view.output("export"), target, kind="model", how="copy")
        return target

    def transformers(self, folder: str | Path) -> Any:
        """The model as ``transformers`` loads it from ``folder``, where it is exported to unless it is there; needs
        PyTorch."""
        need("transformers", "torch")
        from transformers import AutoModelForCausalLM

        target = Path(folder)
        return AutoModelForCausalLM.from_pretrained(target if target.is_dir() else self.export(target))

    def model(self) -> Any:
        """The trained model, a Levanter ``LmHeadModel`` whose state has the recorded digest."""
        return self._trained[0]

    def generate(self, prompt: str, max_tokens: int = 40, *, temperature: float = 0.8, seed: int = 0) -> str:
        """The prompt and what the model says after it. ``temperature`` 0 takes the likeliest token each time. The same
        question and ``seed`` have the same answer on every machine."""
        from marin.library.model import continued

        return continued(
            self._view,
            self._programs,
            self._trained[1],
            prompt,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
        )

    def verify(self, *, workers: int = 1, only: Collection[str] = NAMES, record: bool = True) -> Checked:
        """Make every step again and compare each bit, in this process.

        Args:
            workers: processes that replay segments side by side.
            only: some of ledger, artifacts, data, training, model and evaluation.
            record: append the verdicts to the log.

        Raises:
            UsageError: the log is not this user's own; `marin verify` reads others' in a confined process.
        """
        from marin.library.checking import verify_own

        return verify_own(self._root, self.id, workers=workers, only=only, record=record)

    @cached_property
    def _trained(self) -> tuple[Any, Any]:
        from marin.library.model import trained

        return trained(self._view, self._root.store())

    @cached_property
    def _programs(self) -> Any:
        from marin.library.model import speaker

        return speaker(self._view, self._trained[0])

    def _page(self, name: str, title: str) -> Page:
        return Page(title, load_plugin("marin.pages", "run", "a page of a run")(self._root, self.id, name))

    def __repr__(self) -> str:
        return f"<run {self.name}: {self.status}, verified {self.verified}>"

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()
