"""What the executor itself costs: a graph of 10,000 trivial steps, beside DVC's `echo` stages, in one run.

    python -m bench.graph [--steps 10000] [--stages 40] [--json]

The graph is 100 chains of 100 additions, declared to run in the executor's process. Every step is claimed by a lease, begun
and completed as durable events under signed checkpoints, its value put into the store. Then the same graph is planned again
and found up to date, every stored byte hashed again; and explained by a dry run after all its configurations were changed.
DVC runs a chain of `echo` stages of its own. Each figure is taken in a fresh process. Absolute times move with the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from textwrap import dedent
from time import perf_counter

from bench.figure import Figure

WIDTH = 100
EXPERIMENT = dedent('''
    """Chains of additions."""
    import os
    from marin.graph import Context, Resources, Step

    HERE = Resources(in_process=True)
    STEPS, SHIFT = int(os.environ["BENCH_STEPS"]), int(os.environ.get("BENCH_SHIFT", "0"))

    def add(context: Context) -> object:
        return context.config["number"] + sum(given.value for given in context.inputs.values())

    steps = []
    for chain in range({width}):
        last = None
        for link in range(STEPS // {width}):
            inputs = {{}} if last is None else {{"last": last}}
            last = Step(f"add/{{chain:03d}}-{{link:04d}}", add, {{"number": SHIFT + chain * STEPS + link}}, inputs, HERE)
        steps.append(last)
''').format(width=WIDTH)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.graph", description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--stages", type=int, default=40, help="of DVC; 0 leaves it out")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inner", choices=("run", "plan", "dry"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inner:
        sys.stdout.write(json.dumps(inner(options.inner)))
        return
    for row in measure(options.steps, options.stages):
        line = json.dumps({"what": row.what, "value": row.value, "unit": row.unit}) if options.json else str(row)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def measure(steps: int, stages: int) -> list[Figure]:
    """All figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "chains.py").write_text(EXPERIMENT, encoding="utf-8")
        environment = {**os.environ, "MARIN_ROOT": str(folder / "root"), "MARIN_KEY": str(folder / "key"),
                       "BENCH_STEPS": str(steps), "BENCH_FOLDER": name}
        from_inner = {}
        for number, (mode, shift) in enumerate((("run", 0), ("plan", 0), ("dry", 0), ("dry", 1))):
            done = subprocess.run([sys.executable, "-m", "bench.graph", "--inner", mode], check=True, capture_output=True,
                                  env={**environment, "BENCH_SHIFT": str(shift)},
                                  cwd=Path(__file__).parents[1])
            from_inner[number] = json.loads(done.stdout)
        ran, planned, dry, dry_changed = (from_inner[number] for number in range(4))
        rate = steps / ran["seconds"]
        rows = [
            Figure(f"executed, every event durable ({ran['events']} events)", rate, "steps/s"),
            Figure("memory of the executor after it", ran["memory"], "MB"),
            Figure("planned again and found up to date, every byte hashed", planned["seconds"], "s"),
            Figure("dry run, all hits", dry["seconds"], "s"),
            Figure("dry run, all changed", dry_changed["seconds"], "s"),
        ]
        if stages:
            dvc = stages / dvc_seconds(folder / "dvc", stages)
            rows += [Figure(f"dvc repro, {stages} echo stages", dvc, "stages/s"),
                     Figure("steps of ours for a stage of DVC", rate / dvc, "x")]
        return rows


def inner(mode: str) -> dict[str, float]:
    """One measurement, in a process of its own."""
    from marin.graph.execute import execute_graph
    from marin.graph.files import load_graph
    from marin.graph.memory import Memory
    from marin.graph.planning import Planner
    from marin.root import create_root, open_root

    file = Path(os.environ["BENCH_FOLDER"]) / "chains.py"
    if mode == "run":
        create_root(origin="bench.example/graph")
    started = perf_counter()
    root, graph = open_root(), load_graph(file)
    if mode == "dry":
        from marin.composition import PRICES, conf_folder
        from marin.cost import load_prices
        from marin.graph.why import explain
        from marin.measured import measurements

        prices, measured = load_prices(conf_folder() / PRICES), measurements(root.history())
        answers = list(explain(Planner(graph, root, Memory.of(root)), prices, measured))
        assert len(answers) == len(graph.nodes), "an answer for every step"
    else:
        outcome = execute_graph(graph, root, file=file)
        assert outcome.counts == {"executed" if mode == "run" else "cached": len(graph.nodes)}, outcome.counts
    took = perf_counter() - started
    return {"seconds": took, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "events": root.reader().checkpoint().size}


def dvc_seconds(folder: Path, stages: int) -> float:
    """A chain of `echo` stages by `dvc repro`, in a repository of its own."""
    folder.mkdir()
    lines = ["stages:"]
    for number in range(stages):
        lines += [f"  s{number}:", f"    cmd: echo {number} > {number}.txt", f"    outs: [{number}.txt]"]
        if number:
            lines.append(f"    deps: [{number - 1}.txt]")
    (folder / "dvc.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    dvc = str(Path(sys.executable).with_name("dvc"))
    for command in (["git", "init", "-q"], [dvc, "init", "-q"], [dvc, "config", "core.analytics", "false"]):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    started = perf_counter()
    subprocess.run([dvc, "repro", "-q"], cwd=folder, check=True, capture_output=True)
    return perf_counter() - started


if __name__ == "__main__":
    main()
