"""The experiments that are registered, as a table: `marin ls experiments`, and `marin experiment ls`."""

from __future__ import annotations

from marin.cli.output import print_json, print_table
from marin.record.events import ExperimentReported, write
from marin.record.root import Root


def print_experiments(root: Root, *, as_json: bool) -> None:
    """Every registered experiment, the newest registration of each."""
    from marin.history.runs import facts
    from marin.preregistration.arms import registrations

    history = root.history()
    newest = {fact.body.experiment: fact for fact in registrations(history)}
    reported = {fact.body.experiment: (fact.index, write(fact.body)) for fact in facts(history, ExperimentReported)}
    rows = []
    for name, fact in newest.items():
        index, last = reported.get(name, (None, {}))
        rows.append(
            {
                "experiment": name,
                "registered": fact.time,
                "event": fact.index,
                "registration": fact.body.registration,
                "hypothesis": fact.body.hypothesis,
                "arms": list(fact.body.arms),
                "seeds": fact.body.seeds,
                "verdict": last.get("verdict"),
                "supported": last.get("supported"),
                "report": last.get("artifact"),
                "reported_at": index,
            }
        )
    if as_json:
        print_json(rows)
        return
    print_table(
        ("experiment", "registered", "arms", "seeds", "verdict", "hypothesis"),
        [
            (
                name,
                fact.time[:19] + "Z",
                str(len(fact.body.arms)),
                str(len(fact.body.seeds)),
                str(reported[name][1].get("verdict")) if name in reported else "",
                fact.body.hypothesis,
            )
            for name, fact in newest.items()
        ],
        empty="no experiment is registered: `marin experiment register FILE`",
    )
