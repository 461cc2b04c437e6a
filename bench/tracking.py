"""`python -m bench.tracking`: what recording and looking cost.

    recording   1,000 train steps of metrics into the ledger, beside MLflow's own log_metric (100 of them, scaled)
    rebuild     1,000 runs of 1,000 train steps into MLflow's database, from a verified log
    lag         from an event's durability to MLflow's answer, with a follower running
    start       `marin ui` until it answers, beside `mlflow server` alone
    points      a run with 100,000 points: the requests of MLflow's run page, and the page in a headless Chromium,
                beside the page of a run with 200 points

`--runs`, `--steps` make the rebuild smaller. Everything happens in a folder of its own with a key of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.figure import Figure, seconds
from ledger import Draft, digest_bytes
from marin.history.runs import stream_of
from marin.record import events as types
from marin.record.creation import create_root
from marin.record.events import Body, Output
from marin.record.root import Root

SEGMENT = 100
QUIET = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}


def draft(run: str, kind: str, body: Body) -> Draft:
    """An event of a run."""
    return Draft(kind, stream_of(run), types.write(body))


def segment(run: str, start: int, end: int) -> list[Draft]:
    """What training records of one segment: the evidence, and the measurements beside it."""
    steps = range(start, end)
    state = [digest_bytes(f"{run} {step}".encode()) for step in (start, end)]
    digests = [digest_bytes(f"{run} batch {step}".encode()) for step in steps]
    losses = [(2.0 + 5.0 / (1.0 + step)).hex() for step in steps]
    return [
        draft(
            run,
            types.TRAIN_SEGMENT,
            types.TrainSegment(
                run=run,
                start=start,
                end=end,
                losses=losses,
                batches=digests,
                fingerprints=digests,
                start_state=state[0],
                end_state=state[1],
                trace=state[1],
            ),
        )
    ]


def whole_run(run: str, steps: int) -> list[Draft]:
    """The events of a run with one training and its steps."""
    some = digest_bytes(run.encode())
    recipe = {
        "seed": "0",
        "dataset": {"name": "grammar"},
        "model": {"seq_len": 128, "hidden_dim": 128},
        "trainer": {"batch_size": 8, "num_steps": steps},
        "optimizer": {"learning_rate": (0.003).hex()},
    }
    output = Output(kind="state", digest=some, size=9, artifact=some)
    found = [
        draft(
            run,
            types.RUN_STARTED,
            types.RunStarted(
                run=run,
                pipeline="pipeline",
                plan=some,
                recipe_digest=some,
                recipe=recipe,
                code={"digest": some},
                environment={"python": "3.12"},
            ),
        )
    ]
    for step in ("corpus", "tokenizer", "tokens", "train", "evaluate", "export"):
        found.append(
            draft(
                run,
                types.STEP_STARTED,
                types.StepStarted(
                    run=run,
                    step=step,
                    identity=some,
                    config_digest=some,
                    config={"a": 1},
                    inputs={},
                    code=some,
                    attempt=1,
                ),
            )
        )
        if step == "train":
            for start in range(0, steps, SEGMENT):
                found += segment(run, start, min(start + SEGMENT, steps))
        found.append(
            draft(
                run,
                types.STEP_COMPLETED,
                types.StepCompleted(
                    run=run,
                    step=step,
                    identity=some,
                    inputs={},
                    output=output,
                    metrics={"loss": (2.5).hex()},
                    seconds=1.0,
                ),
            )
        )
    found.append(draft(run, types.RUN_COMPLETED, types.RunCompleted(run=run, outputs={"train": output}, metrics={})))
    return found


@contextlib.contextmanager
def root_in(folder: Path) -> Iterator[Root]:
    """A root with a key of its own, named in the environment for what is started from here."""
    os.environ |= {"MARIN_ROOT": str(folder / "root"), "MARIN_KEY": str(folder / "key"), **QUIET}
    yield create_root(str(folder / "root"), origin="bench.local/tracking")


def recording(folder: Path) -> list[Figure]:
    """The trainer's time for the metrics of 1,000 train steps, and MLflow's own for the same."""
    with root_in(folder) as root:
        root.append(whole_run("first", SEGMENT))
        ours = seconds(
            lambda: [root.append(segment("first", start, start + SEGMENT)) for start in range(0, 1000, SEGMENT)]
        )
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{folder / 'plain.db'}")
    run = client.create_run(client.create_experiment("plain")).info.run_id
    calls = 100
    theirs = seconds(lambda: [client.log_metric(run, "loss", 2.0, step=step) for step in range(calls)]) * 1000 / calls
    return [
        Figure("recording 1,000 train steps, durable and signed", ours * 1000, "ms"),
        Figure("MLflow's own log_metric, 1,000 train steps", theirs * 1000, "ms"),
        Figure("ratio", theirs / ours, "times faster"),
    ]


def rebuild(folder: Path, runs: int, steps: int) -> list[Figure]:
    """MLflow's database from nothing."""
    from marin.plugins.mlflow.projection.follow import MlflowProjection

    with root_in(folder) as root:
        for first in range(0, runs, 20):
            root.append(
                [item for number in range(first, min(first + 20, runs)) for item in whole_run(f"run{number:05}", steps)]
            )
        projection = MlflowProjection(folder / "mlflow", root.reader())
        took = seconds(projection.catch_up)
        again = seconds(projection.catch_up)
        projection.close()
        import mlflow

        client = mlflow.MlflowClient(f"sqlite:///{folder / 'mlflow' / 'mlflow.db'}")
        from marin.history.projection.identity import Ids

        assert len(client.get_metric_history(Ids(root.verifier.name).run(f"run{runs - 1:05}"), "train/loss")) == steps
    return [
        Figure(f"rebuild of {runs:,} runs x {steps:,} train steps ({2 * runs * steps:,} points)", took, "s"),
        Figure("catching up with nothing new", again, "s"),
    ]


def lag(folder: Path) -> list[Figure]:
    """From durable to shown, the worst of twenty segments, while the follower looks every half second."""
    from marin.plugins.mlflow.projection.follow import Follower, MlflowProjection

    with root_in(folder) as root:
        root.append(whole_run("first", SEGMENT))
        follower = Follower(MlflowProjection(folder / "mlflow", root.reader()))
        follower.start()
        follower.wait_for(root.reader().checkpoint().size, timeout=60)
        worst = 0.0
        for number in range(1, 21):
            receipt = root.append(segment("first", number * SEGMENT, (number + 1) * SEGMENT))[-1]
            worst = max(worst, seconds(lambda size=receipt.index + 1: follower.wait_for(size, timeout=60)))  # type: ignore[misc]
        follower.stop()
    return [Figure("lag of what is shown behind the ledger, worst of 20", worst, "s")]


def answered(command: list[str], port: int) -> float:
    """Seconds until a server answers /health; it is ended again."""
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            while True:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                        return time.perf_counter() - began
                except urllib.error.HTTPError as refused:  # an answer too: marin ui asks for its token
                    refused.close()
                    if refused.code == 401:
                        return time.perf_counter() - began
                except OSError:
                    pass
                assert process.poll() is None, command
                time.sleep(0.02)
        finally:
            os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def start(folder: Path) -> list[Figure]:
    """Both servers, each on a database that exists, with caches of the file system warm."""
    with root_in(folder) as root:
        root.append(whole_run("first", SEGMENT))
    ports = [free_port() for _ in range(3)]
    ours = [sys.executable, "-m", "marin.cli.main", "ui", "--port"]
    answered([*ours, str(ports[0])], ports[0])
    database = f"sqlite:///{folder / 'root' / 'projections' / 'mlflow' / 'mlflow.db'}"
    theirs = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--host",
        "127.0.0.1",
        "--workers",
        "1",
        "--backend-store-uri",
        database,
        "--port",
        str(ports[1]),
    ]
    plain = answered(theirs, ports[1])
    mine = answered([*ours, str(ports[2])], ports[2])
    return [
        Figure("mlflow server, until it answers", plain, "s"),
        Figure("marin ui, until it answers", mine, "s"),
        Figure("marin ui beyond MLflow's own start", mine - plain, "s"),
    ]


def points(folder: Path, count: int = 100_000) -> list[Figure]:
    """What MLflow's run page asks for, of a run with many points, from `marin ui`'s server; and the page in a
    browser."""
    with root_in(folder) as root:
        root.append(whole_run("small", SEGMENT))
        root.append(whole_run("first", 0))
        for first in range(0, count // 2, 10 * SEGMENT):
            root.append(
                [
                    item
                    for start in range(first, first + 10 * SEGMENT, SEGMENT)
                    for item in segment("first", start, start + SEGMENT)
                ]
            )
        from marin.history.projection.identity import Ids

        small, run = (Ids(root.verifier.name).run(name) for name in ("small", "first"))
    port = free_port()
    command = [sys.executable, "-m", "marin.cli.main", "ui", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            printed = process.stdout.readline().strip()
            address, _, token = printed.partition("/?token=")
            named = {"authorization": f"Bearer {token}"}
            paths = [
                f"/ajax-api/2.0/mlflow/runs/get?run_id={run}",
                *(
                    f"/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval?run_ids={run}&metric_key=train%2F{key}"
                    "&max_results=320"
                    for key in ("loss", "tokens")
                ),
            ]

            requests = [urllib.request.Request(address + path, headers=named) for path in paths]  # noqa: S310

            def asked() -> None:
                for request in requests:
                    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own address
                        answer.read()

            deadline = time.monotonic() + 120
            while time.monotonic() < deadline:
                with urllib.request.urlopen(requests[1], timeout=60) as answer:  # noqa: S310
                    if len(answer.read()) > 10_000:
                        break
            took = seconds(asked)
            drawn = opened(printed, [small, run, small, run, run])
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)
    found = [Figure(f"what a run page with {count:,} points asks of the server", took, "s")]
    if drawn:  # the first page brings MLflow's own program into the browser
        found += [
            Figure("MLflow's program and a run page with 200 points, in a new browser", drawn[0], "s"),
            Figure("a run page with 200 points", drawn[2], "s"),
            Figure(f"a run page with {count:,} points, first look", drawn[1], "s"),
            Figure(f"a run page with {count:,} points, slowest of two more", max(drawn[3:]), "s"),
        ]
    return found


def opened(printed: str, runs: list[str]) -> list[float]:
    """Seconds until the curves of each run are drawn, in one headless Chromium; nothing where there is none."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None or importlib.util.find_spec("playwright") is None:
        return []
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as play:
        page = play.chromium.launch(
            executable_path=browser, args=["--no-sandbox", "--disable-gpu", "--no-first-run"]
        ).new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(60_000)
        address = printed.partition("/?token=")[0]
        page.goto(printed, wait_until="commit")  # leaves the token in a cookie
        for run in runs:
            page.goto("about:blank")
            began = time.perf_counter()
            page.goto(f"{address}/#/experiments/1/runs/{run}/model-metrics", wait_until="commit")
            page.get_by_placeholder("Search metric charts").fill("loss")  # charts out of sight are not drawn
            page.wait_for_function("() => document.querySelectorAll('.scatterlayer path.js-line').length > 0")
            found.append(time.perf_counter() - began)
    return found


def main() -> None:
    """Measure and print; a word names what to measure."""
    parser = argparse.ArgumentParser(prog="python -m bench.tracking", description=__doc__)
    parser.add_argument("what", nargs="*", choices=["recording", "rebuild", "lag", "start", "points", []], default=[])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    measures: dict[str, Callable[[Path], list[Figure]]] = {
        "recording": recording,
        "rebuild": lambda folder: rebuild(folder, options.runs, options.steps),
        "lag": lag,
        "start": start,
        "points": points,
    }
    for name in options.what or measures:
        with tempfile.TemporaryDirectory(prefix="marin-bench-") as folder:
            for figure in measures[name](Path(folder)):
                sys.stdout.write(f"{figure}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
