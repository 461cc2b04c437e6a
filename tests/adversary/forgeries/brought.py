"""What an honest run is handed out as: its model, and a bundle of an evaluation of it, made once by a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.adversary.forgeries.workshop import Base

ROWS = [
    {"sentence_good": f"the dog {word}s", "sentence_bad": f"the dog {word}", "UID": "agreement", "field": "x"}
    for word in ("run", "sit", "wait")
]


def brought(base: Base) -> Path:
    """A folder with ``root`` (a copy with one evaluation), ``model`` and ``bundle``; nobody may change it."""
    place = base.folder / "brought"
    if not (place / "bundle").is_dir():
        place.mkdir(exist_ok=True)
        environment = os.environ | {"MARIN_KEY": str(base.key)}
        words = [sys.executable, "-m", "tests.adversary.forgeries.brought", str(base.location), str(place), base.run]
        done = subprocess.run(words, env=environment, cwd=Path(__file__).parents[3], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return place


def make(location: Path, place: Path, run: str) -> None:
    """Record an evaluation in a copy of the root, and hand out model and bundle."""
    import shutil

    from ledger import Draft, Log
    from marin.history.runs import evaluation_stream, load
    from marin.kinds.families.measured import EVALUATION_RECORDED
    from marin.process.arithmetic import apply
    from marin.recipe.schema import Execution
    from marin.record import outputs
    from marin.record.events import write
    from marin.record.root import open_root

    shutil.copytree(location, place / "root", ignore=shutil.ignore_patterns("projections", "work"))
    root = open_root(str(place / "root"))
    view = load(root.history(), run)
    apply(view.recipe.arithmetic, Execution(devices=1))
    from marin.evaluation.scoring import Scorer
    from marin.evaluation.subject import open_subject
    from marin.plugins.evaluation.babylm.scoring import evaluated  # jax, after the contract is in force
    from marin.plugins.evaluation.babylm.tasks import read
    from marin.plugins.evaluation.bundle.write import write_bundle
    from marin.plugins.evaluation.recorded.evaluated import numbers
    from marin.plugins.evaluation.recorded.records import Settings, write_tree

    with TemporaryDirectory() as data:
        (Path(data) / "blimp_filtered").mkdir()
        text = "".join(json.dumps(row | {"linguistics_term": "y"}) + "\n" for row in ROWS)
        (Path(data) / "blimp_filtered/agreement.jsonl").write_text(text)
        tasks = read(Path(data))
    subject = open_subject(view, root.store())
    found = evaluated(subject, Scorer(subject.model, subject.recipe), tasks, Settings())
    with TemporaryDirectory(dir=root.local) as base:
        write_tree(Path(base), tasks, found.samples, numbers(found.results))
        body = found.body(subject, root.store().put_tree(Path(base)).digest)
    with Log.open(root.storage, root.signer()) as log:  # a root would go on only where its log lives
        log.append([Draft(EVALUATION_RECORDED, evaluation_stream(run), write(body))])
    root = open_root(root.location)
    outputs.checkout(root.store(), view.output("export"), place / "model", kind="model", how="copy")
    write_bundle(root, load(root.history(), run), place / "bundle")


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
