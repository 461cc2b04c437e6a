"""`python -m bench.pictures ROOT RUN`: the four pictures in README, taken of a real and verified run in a headless Chromium.

Writes docs/images/seal.webp, mlflow.webp, report.webp and lineage.webp, each below 60 kB. Needs playwright and a
Chromium on the path.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from bench.people.picture import ARGUMENTS, keep
from marin.history.projection.identity import Ids
from marin.history.runs import resolve
from marin.record.root import open_root
from marin.reporting.pages import draw

FOLDER = Path(__file__).parents[1] / "docs" / "images"
BYTES, WIDTH = 60_000, 1000


def keep_narrow(name: str, picture: Image.Image) -> None:
    """The picture in the width of README."""
    picture = picture.resize((WIDTH, picture.height * WIDTH // picture.width), Image.Resampling.LANCZOS)
    FOLDER.mkdir(exist_ok=True)
    size = keep(FOLDER / f"{name}.webp", picture, most=BYTES)
    sys.stdout.write(f"{FOLDER / name}.webp  {size} bytes\n")


def seen(page: Page) -> Image.Image:
    """What the page shows."""
    return Image.open(io.BytesIO(page.screenshot()))


def main() -> None:
    """Serve the root, look, keep."""
    parser = argparse.ArgumentParser(prog="python -m bench.pictures", description=__doc__)
    parser.add_argument("root")
    parser.add_argument("run")
    options = parser.parse_args()
    os.environ["MARIN_ROOT"] = options.root
    opened = open_root()
    recorded = resolve(opened.history(), options.run)
    run = Ids(opened.verifier.name).run(recorded)
    marin = [sys.executable, "-m", "marin.cli.main"]
    with (
        tempfile.TemporaryDirectory(prefix="marin-pictures-") as folder,
        sync_playwright() as play,
        subprocess.Popen([*marin, "ui", "--port", "0"], stdout=subprocess.PIPE, text=True) as server,
    ):
        lineage = Path(folder) / "lineage.html"
        subprocess.run([*marin, "lineage", options.run, "--html", str(lineage)], check=True, stdout=subprocess.DEVNULL)
        try:
            assert server.stdout is not None
            printed = server.stdout.readline().strip()
            address, _, token = printed.partition("/?token=")
            page = play.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS).new_page(
                viewport={"width": 1400, "height": 850}
            )
            page.set_default_timeout(600_000)
            page.goto(printed)
            place = page.url.partition("#")[0]  # the pages have a path of their own for each server
            asked = f"{address}/api/2.0/mlflow/runs/get?run_id={run}"
            headers = {"authorization": f"Bearer {token}"}
            answer = page.request.get(asked, headers=headers)
            for _ in range(600):  # until the projection has the run
                if answer.ok:
                    break
                page.wait_for_timeout(1000)
                answer = page.request.get(asked, headers=headers)
            experiment = answer.json()["run"]["info"]["experiment_id"]
            page.goto(f"{place}#/experiments/{experiment}/runs/{run}/model-metrics")
            page.get_by_text("train loss").first.wait_for()
            page.locator(".js-plotly-plot .scatterlayer path").first.wait_for()
            keep_narrow("mlflow", seen(page))

            def artifact(name: str) -> bytes:  # MLflow hands artifacts out as downloads
                asked = urllib.request.Request(  # noqa: S310 - our own address
                    f"{address}/get-artifact?run_uuid={run}&path={name}", headers=headers
                )
                with urllib.request.urlopen(asked) as answer:  # noqa: S310
                    return bytes(answer.read())

            keep_narrow("seal", Image.open(io.BytesIO(draw(opened, recorded, "verification.png"))))
            report = Path(folder) / "report.html"
            report.write_bytes(artifact("report.html"))
            page.goto(report.as_uri())
            keep_narrow("report", seen(page))
            page.goto(lineage.as_uri())
            page.locator("a.node").last.focus()
            keep_narrow("lineage", seen(page))
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)


if __name__ == "__main__":
    main()
