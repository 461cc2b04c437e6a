"""What the executor itself costs: a graph of 10,000 trivial steps, beside DVC's `echo` stages, in one run.

    python -m bench.graph [--steps 10000] [--sizes 1000,10000,40000] [--stages 40] [--json]

The graph is 100 chains of 100 additions, declared to run in the executor's process. Every step gets a lease, is begun
and completed as durable events under signed checkpoints, its value put into the store. Then the same graph is planned
again and found up to date, every stored byte hashed again; and explained by a dry run after all its configurations were
changed. DVC runs a chain of `echo` stages of its own. Each figure is taken in a fresh process. Absolute times move with
the machine.

Memory (resident, of a process that begins with its modules) is told apart for graphs of several sizes: what the file's
own values and the graph of them take; what the plan takes, before the first step is executed; by how much the process
grows at most from there to the last step; and by how much more while the end is recorded, where the store reads the
list of all results in parts of 8 MiB. The first two must grow with the graph, the others must not.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain
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
    parser.add_argument(
        "--sizes", default="1000,10000,40000", help="of graphs whose memory is told apart; empty leaves it out"
    )
    parser.add_argument("--stages", type=int, default=40, help="of DVC; 0 leaves it out")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inner", choices=("run", "plan", "dry"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inner:
        sys.stdout.write(json.dumps(inner(options.inner)))
        return
    sizes = [int(size) for size in options.sizes.split(",") if size]
    for row in chain(measure(options.steps, options.stages), *(memory(size) for size in sizes)):
        line = json.dumps({"what": row.what, "value": row.value, "unit": row.unit}) if options.json else str(row)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def measure(steps: int, stages: int) -> list[Figure]:
    """All figures of one graph."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ran, planned = measured(folder, "run", steps), measured(folder, "plan", steps)
        dry, dry_changed = measured(folder, "dry", steps), measured(folder, "dry", steps, shift=1)
        rate = steps / ran["seconds"]
        rows = [
            Figure(f"executed, every event durable ({ran['events']} events)", rate, "steps/s"),
            Figure("planned again and found up to date, every byte hashed", planned["seconds"], "s"),
            Figure("dry run, all hits", dry["seconds"], "s"),
            Figure("dry run, all changed", dry_changed["seconds"], "s"),
        ]
        if stages:
            dvc = stages / dvc_seconds(folder / "dvc", stages)
            rows += [
                Figure(f"dvc repro, {stages} echo stages", dvc, "stages/s"),
                Figure("steps of ours for a stage of DVC", rate / dvc, "x"),
            ]
        return rows


def memory(steps: int) -> Iterator[Figure]:
    """Where the memory goes, of a graph that is executed and of the same graph found up to date."""
    with tempfile.TemporaryDirectory() as name:
        for mode, told in (("run", "executed"), ("plan", "found up to date")):
            found = measured(Path(name), mode, steps)
            yield Figure(f"{steps} steps, {told}: the graph's own values", found["graph"], "MB")
            yield Figure(f"{steps} steps, {told}: plan", found["plan"], "MB")
            yield Figure(f"{steps} steps, {told}: growth meanwhile, at most", found["growth"], "MB")
            yield Figure(f"{steps} steps, {told}: and while the end is recorded", found["end"], "MB")


def measured(folder: Path, mode: str, steps: int, shift: int = 0) -> dict[str, float]:
    """:func:`inner` in a process of its own."""
    (folder / "chains.py").write_text(EXPERIMENT, encoding="utf-8")
    environment = {
        **os.environ,
        "MARIN_ROOT": str(folder / "root"),
        "MARIN_KEY": str(folder / "key"),
        "BENCH_STEPS": str(steps),
        "BENCH_FOLDER": str(folder),
        "BENCH_SHIFT": str(shift),
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench.graph", "--inner", mode],
        check=True,
        stdout=subprocess.PIPE,
        env=environment,
        cwd=Path(__file__).parents[1],
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def inner(mode: str) -> dict[str, float]:
    """One measurement, in a process of its own."""
    from marin.execution.leases.lease import Claimant
    from marin.graph.execution.loop import GraphExecution, Options
    from marin.graph.files import load_graph
    from marin.graph.planning import Planner
    from marin.record.creation import create_root
    from marin.record.root import open_root

    file = Path(os.environ["BENCH_FOLDER"]) / "chains.py"
    if mode == "run":
        create_root(origin="bench.example/graph")
    root, started = open_root(), perf_counter()
    if mode == "plan":
        root.history()  # the read model of the ledger is brought up to date by the first that looks
    before = resident()
    graph = load_graph(file)
    if mode == "dry":
        from marin.graph.why import explain
        from marin.history.measured import measurements
        from marin.recipe.composition import PRICES, conf_folder
        from marin.recipe.cost import load_prices

        prices, measured = load_prices(conf_folder() / PRICES), measurements(root.history())
        answers = list(explain(Planner(graph, root), prices, measured))
        assert len(answers) == len(graph.nodes), "an answer for every step"
        return {"seconds": perf_counter() - started}
    loaded = resident()
    execution = GraphExecution(graph, root, file, Options(), Claimant("bench"))
    planned = resident()
    forget_the_peak()
    execution.run()
    highest = resident("VmHWM")
    outcome = execution.end()
    seconds = perf_counter() - started
    assert outcome.counts == {"executed" if mode == "run" else "cached": len(graph.nodes)}, outcome.counts
    return {
        "seconds": seconds,
        "events": root.reader().checkpoint().size,
        "graph": loaded - before,
        "plan": planned - loaded,
        "growth": highest - planned,
        "end": resident("VmHWM") - highest,
    }


def resident(field: str = "VmRSS") -> float:
    """Megabytes of memory that this process has; its peak as VmHWM (proc_pid_status(5))."""
    gc.collect()
    line = next(
        line for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines() if line.startswith(field)
    )
    return int(line.split()[1]) * 1024 / 1e6


def forget_the_peak() -> None:
    """From here on VmHWM counts anew (proc(5), clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


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
