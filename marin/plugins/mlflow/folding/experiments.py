"""Experiments as MLflow shows them: their notes, their hypotheses, and the report of each as a run of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from marin.history.names import data_of, model_of
from marin.history.projection.identity import Ids
from marin.history.projection.text import plain
from marin.history.run import plan_of
from marin.kinds.families.experiment import ExperimentRegistered, ExperimentReported
from marin.plugins.mlflow.folding.intents import ExperimentTags, Intent, OpenExperiment, OpenRun, Shelve, Status, Tags
from marin.plugins.mlflow.folding.projected import RecordedEvent
from marin.process.text import short
from marin.record.events import RunStarted
from marin.record.trust.trusted import CLAIMED
from marin.record.verdicts import NEVER

VARIED_TAG = "marin.varied"
"""The tag of an experiment with the keys that set its runs apart."""


class Experiments:
    """Which experiments MLflow has, and what was registered of them."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._known: set[str] = set()
        self._hypotheses: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._bodies: dict[str, ExperimentRegistered] = {}

    def named(self, registration: str, pipeline: str) -> str:
        """The experiment of a run that cites this registration, or else its pipeline."""
        return self._names.get(registration, plan_of(pipeline))

    def cited(self, body: RunStarted) -> ExperimentRegistered | None:
        """The registration that a run cites; None where it cites none that is here."""
        return self._bodies.get(body.experiment)

    def varied(self, name: str, keys: Sequence[str]) -> Iterator[Intent]:
        """Which keys set the runs of an experiment apart: columns of its list."""
        yield ExperimentTags(name, {VARIED_TAG: json.dumps(list(keys))})

    def opened(self, name: str, time: int) -> Iterator[Intent]:
        """An experiment that something is about to stand in."""
        if name in self._known:
            return
        self._known.add(name)
        yield OpenExperiment(
            name,
            time,
            {
                "mlflow.experimentKind": "custom_model_development",
                "marin.root": self._ids.origin,
                "mlflow.note.content": self._about(name),
            },
        )

    def note(self, experiment: str, run: RunStarted, verified: str = NEVER, said: str = "") -> str:
        """The note on a run: the verdict, what somebody ``said``, what it is, what decides its bits, and where to read on."""
        hypothesis = self._hypotheses.get(experiment)
        about = f"Hypothesis of the experiment: {plain(hypothesis)}\n\n" if hypothesis else ""
        about = f"{plain(said)}\n\n{about}" if said else about
        what = plain(model_of(run.recipe) or "a model")
        if data := data_of(run.recipe):
            what += f" on {plain(data)}"
        decided = f"Recipe `{plain(short(run.recipe_digest))}`"
        if isinstance(commit := run.code.get("commit"), str) and commit:
            decided += f", code `{plain(commit[:12])}`"
        verdict = f"Replayed and compared: **{plain(verified)}**."
        if verified == NEVER:
            verdict = "Not replayed by anybody yet."
        elif twin := verified.partition(" as ")[2]:
            verdict = f"The same recipe and the same bytes as run {plain(twin)}, which was replayed: **PASS**."
        return (
            f"{verdict}\n\n{about}{what}, seed {plain(str(run.recipe.get('seed', '?')))}. {decided}.\n\n"
            "Artifacts: `report.html` says what was run, with which result and which verdicts, `verification.html` what "
            "a replay found, `lineage.html` what it was made from, `record.json` has every digest. To replay it and compare "
            f"every bit: `marin verify {plain(run.run)}`."
        )

    def registered(self, recorded: RecordedEvent, body: ExperimentRegistered) -> Iterator[Intent]:
        """Question and hypothesis stand on the experiment from then on."""
        name = body.experiment
        self._hypotheses[name], self._names[body.registration] = body.hypothesis, name
        self._bodies[body.registration] = body
        yield from self.opened(name, recorded.time)
        yield ExperimentTags(
            name,
            {
                "mlflow.note.content": self._about(name),
                "marin.hypothesis": body.hypothesis[:5000],
                "marin.question": body.question[:5000],
                "marin.registration": body.registration,
                "marin.registered": str(recorded.index),
            },
        )

    def reported(self, recorded: RecordedEvent, body: ExperimentReported, *, claimed: bool) -> Iterator[Intent]:
        """The report is a run of its own, with the stored tables and plots as its artifacts. ``claimed``: its conclusion is
        somebody else's word."""
        conclusion = f"{CLAIMED} {body.verdict}" if claimed else body.verdict
        run = self._ids.report(body.experiment)
        yield from self.opened(body.experiment, recorded.time)
        yield OpenRun(run, body.experiment, "report", recorded.time, recorded.event.actor)
        yield Tags(
            run,
            {
                "marin.conclusion": conclusion,
                "mlflow.note.content": f"The report of {plain(body.experiment)}: {plain(conclusion)}.",
            },
        )
        yield Status(run, "FINISHED", recorded.time)
        yield Shelve(run, "", recorded.index, {"report": body.artifact})
        yield ExperimentTags(body.experiment, {"marin.conclusion": conclusion, "marin.reported": str(recorded.index)})

    def _about(self, name: str) -> str:
        """The note on an experiment: its hypothesis where one was registered, and where all this comes from."""
        source = f"Runs of {plain(name)}, from the ledger {plain(self._ids.origin)}."
        hypothesis = self._hypotheses.get(name)
        return f"Hypothesis, registered before the runs: {plain(hypothesis)}\n\n{source}" if hypothesis else source
