"""What a run is called is one word everywhere: in MLflow, in the index of the site, on the run's pages, in the library."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

import marin as library
from ledger import Draft
from marin.history.runs import run_ids, stream_of_graph
from marin.kinds.families.graph import GRAPH_STARTED, GraphStarted
from marin.plugins.mlflow.folding.fold import Fold
from marin.recipe.schema import Recipe, digest
from marin.record import events
from marin.record.root import open_root
from tests.plugins.lab.test_experiment import FILE, record
from tests.plugins.mlflow.test_fold import names_in

Marin = Any


def test_mlflow_the_index_and_the_pages_of_a_run_call_it_alike(marin: Marin, root: Path, tmp_path: Path) -> None:
    """One that a sweep asked for (before it, and after it was through), one of an arm, and one that is neither."""
    Path("exp9_rate.py").write_text(FILE.format(hypothesis="The loss falls."))
    assert marin("experiment", "register", "exp9_rate.py").status == 0
    for arm, seed in (("base", 1), ("base", 2), ("high", 1), ("high", 9)):
        record(arm, seed, 3.0)
    swept = [digest(msgspec.structs.replace(Recipe(), seed=seed)) for seed in (1, 2)]
    begun = GraphStarted(
        graph="sweepabc",
        name="default",
        file="",
        declaration=swept[0],
        steps=6,
        ends=[],
        options={"recipes": swept, "varied": ["trainer.batch_size", "seed"]},
        code={},
        environment={},
    )
    opened = open_root()
    opened.append([Draft(GRAPH_STARTED, stream_of_graph("sweepabc"), events.write(begun))])
    fold = Fold(opened.verifier.name)
    told = names_in(list(fold.apply_all(opened.history().events())))
    names = {run: told[fold.ids.run(run)] for run in run_ids(opened.history())}
    assert names["high1"] == "high seed=1 · high1" and names["high9"].endswith("seed9 · high9")
    assert names["base1"] == "batch_size=8 seed=1 · base1" and names["base2"] == "batch_size=8 seed=2 · base2"
    site = tmp_path / "site"
    assert marin("site", str(site)).status == 0
    index, found = (site / "index.html").read_text(), library.open(str(root))
    for run, name in names.items():
        assert re.search(rf">{re.escape(name)}<", index), (run, "in the index")
        for page in ("report.html", "lineage.html"):
            assert name in (site / "runs" / run / page).read_text(), (run, page)
        assert found.run(run).name == name
