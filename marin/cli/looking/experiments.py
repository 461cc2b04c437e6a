"""Runs that belong together, as a table: `marin ls experiments` (and `marin experiment ls`), `marin ls sweeps`."""

from __future__ import annotations

from marin.cli.output import print_json
from marin.cli.tables import print_table
from marin.history.runs import started_runs
from marin.kinds.families.experiment import ExperimentReported
from marin.record.events import write
from marin.record.root import Root
from marin.record.trust.trusted import CLAIMED


def print_experiments(root: Root, *, as_json: bool) -> None:
    """Every registered experiment, the newest registration of each. What a report concluded that this user did not write is
    claimed, as every verdict is."""
    from marin.history.runs import facts
    from marin.preregistration.arms import registrations

    history = root.history()
    newest = {fact.body.experiment: fact for fact in registrations(history)}
    reported = {fact.body.experiment: (fact.index, write(fact.body)) for fact in facts(history, ExperimentReported)}
    rows = []
    for name, fact in newest.items():
        index, last = reported.get(name, (None, {}))
        mine = index is None or history.written.is_mine(index)
        rows.append(
            {
                "experiment": name,
                "registered": fact.time,
                "event": fact.index,
                "registration": fact.body.registration,
                "hypothesis": fact.body.hypothesis,
                "arms": list(fact.body.arms),
                "seeds": fact.body.seeds,
                "verdict": last.get("verdict") if mine else None,
                "claimed": None if mine else last.get("verdict"),
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
                str(row["verdict"] or "") if row["claimed"] is None else f"{CLAIMED} {row['claimed']}",
                fact.body.hypothesis,
            )
            for (name, fact), row in zip(newest.items(), rows, strict=True)
        ],
        empty="no experiment is registered: `marin experiment register FILE`",
    )


def print_sweeps(root: Root, *, as_json: bool) -> None:
    """Every sweep: how many of its runs there are, and what differs among them."""
    from marin.history.table.sweeps import sweeps
    from marin.history.table.varied import key_differences

    history = root.history()
    recipes = {fact.body.run: fact.body.recipe for fact in started_runs(history)}
    rows = [(one, key_differences({run: recipes[run] for run in one.runs})) for one in sweeps(history)]
    if as_json:
        print_json(
            [
                {"sweep": one.id, "started": one.started, "recipes": len(one.recipes), "runs": list(one.runs)}
                | {"varied": list(found.keys)}
                for one, found in rows
            ]
        )
        return
    print_table(
        ("sweep", "started", "runs", "what differs"),
        [
            (
                one.id,
                one.started[:16].replace("T", " "),
                f"{len(one.runs)} of {len(one.recipes)}",
                ", ".join(found.keys),
            )
            for one, found in rows
        ],
        empty="no sweep yet: `marin train -m seed=1,2,3` is one",
    )
