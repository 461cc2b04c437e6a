"""`import marin` as docs/api.md shows it: its examples are executed, one after the other, on a real run."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ledger import digest_bytes
from marin.pipeline.metrics import METRICS
from marin.process.text import visible

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

REPOSITORY = Path(__file__).resolve().parents[2]

AFTERWARDS = """
import json
from marin.errors import UsageError

said = run.generate("The farmer", max_tokens=8)
try:
    long = run.generate("The farmer " * 40)
except UsageError as error:
    long = str(error)
told = {
    "columns": list(table.columns),
    "row": {key: table.iloc[-1][key] for key in ("status", "verified", "loss", "perplexity", "seed")},
    "losses": [float(loss).hex() for loss in run.losses],
    "steps": list(map(int, run.losses.index)),
    "batch": [batch.digest, batch.recorded],
    "model": type(model).__name__,
    "said": [said, run.generate("The farmer", max_tokens=8), run.generate("The farmer", max_tokens=8, seed=1)],
    "likeliest": run.generate("The farmer", max_tokens=2, temperature=0),
    "long": long,
    "verdicts": found.verdicts,
    "outcome": found.outcome,
    "shown": run._repr_html_(),
    "outputs": run.outputs,
    "name": run.name,
    "id": run.id,
}
print(json.dumps(told))
"""


@pytest.mark.long
def test_the_examples_of_the_page_do_what_it_says(project: Project) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs" / "api.md").read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 6
    told = json.loads(project.forked("\n".join([*blocks, AFTERWARDS])).stdout)
    record = json.loads(project.marin("show", "latest", "--json").stdout)
    assert told["id"] == record["run"] and told["name"] == f"llama-2x32-seed3 · {record['run']}"
    assert told["outputs"] == record["outputs"]
    assert {"status", "verified", "loss", "perplexity", "model", "data", "recipe.model.hidden_dim"} <= set(
        told["columns"]
    )
    assert told["row"]["perplexity"] == record["metrics"]["evaluate.perplexity"]
    known = {f"{step}.{name}" for step, names in METRICS.items() for name in names}
    assert set(record["metrics"]) == known - {"corpus.skipped_lines"}, "what a search may go by is what a run ends with"
    assert (told["row"]["status"], told["row"]["seed"]) == ("completed", "3")
    log = [json.loads(line) for line in project.marin("log", "--json").stdout.splitlines()]
    segments = [event["body"] for event in log if event["type"] == "train.segment/v1"]
    assert told["losses"] == [loss for segment in segments for loss in segment["losses"]]
    assert told["steps"] == list(range(6))
    assert told["batch"][0] == told["batch"][1] == segments[1]["batches"][1]
    assert told["model"] == "LlamaLMHeadModel"
    one, again, other = told["said"]
    assert one == again != other and all(text.startswith("The farmer") for text in (*told["said"], told["likeliest"]))
    assert told["long"].startswith("the prompt is too long: prompt: expected at most 30 tokens")
    assert told["verdicts"] == {
        "ledger": "PASS",
        "artifacts": "PASS",
        "data": "PASS",
        "training": "NOT_RUN",
        "model": "NOT_RUN",
        "evaluation": "NOT_RUN",
    }
    assert told["outcome"] == "PARTIAL", "nothing was wrong in what was looked at"
    assert told["shown"].lstrip().startswith("<iframe sandbox ") and "<script" not in told["shown"]
    replays = [event["body"]["verdicts"] for event in log if event["type"] == "replay.completed/v1"]
    assert replays == [told["verdicts"]], "what was found is an event"
    for page in ("report.html", "lineage.html", "verification.html"):
        assert record["run"] in (project.folder / page).read_text("utf-8")
    artifacts = json.loads(project.marin("ls", "artifacts", "--json").stdout)
    evaluation = next(item["artifact"] for item in artifacts if item["kind"] == "evaluation")
    assert project.marin("store", "get", evaluation[:20], str(project.folder / "evaluated")).returncode == 0
    sample = visible((project.folder / "evaluated" / "sample.txt").read_bytes().decode().strip(), keep="\n\t")
    report = html.unescape((project.folder / "report.html").read_text("utf-8"))
    assert len(sample) > 20 and sample in report, "what the model says stands in its report"
    weights = (project.folder / "model" / "model.safetensors").read_bytes()
    exported = next(item for event in log if event["type"] == "model.exported/v1" for item in [event["body"]["output"]])
    shown = json.loads(project.marin("show", exported["artifact"], "--json").stdout)
    assert digest_bytes(weights) in json.dumps(shown)


def test_importing_marin_imports_nothing_heavy() -> None:
    program = "import sys, marin; marin.open; print(sorted({name.partition('.')[0] for name in sys.modules}))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    for heavy in ("jax", "pandas", "mlflow", "ray", "levanter", "matplotlib", "transformers", "networkx"):
        assert f"'{heavy}'" not in found.stdout


@pytest.mark.long
def test_a_sample_says_what_the_library_says(project: Project) -> None:
    done = project.marin("-q", "sample", "latest", "The farmer", "--tokens", "8", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    program = "import marin, sys; print(marin.open().run().generate('The farmer', 8), end='')"
    assert told["text"] == project.forked(program).stdout
    assert (told["prompt"], told["seed"]) == ("The farmer", 0)
