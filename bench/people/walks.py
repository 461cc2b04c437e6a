"""`python -m bench.people.walks [WALK ...] --keep FOLDER`: five people's first hours, each from an empty home, step by step.

    newcomer     README to the letter, in a fresh clone whose path has a space
    researcher   own text, own tokenizer, a sweep of two rates and two seeds, read
    loop         a loop that is not Marin's, recorded and executed again
    doubter      nothing but an address
    lab          two machines without a common folder, one ledger

Prints for each step its exit status, its seconds by the clock and of a processor. With ``--pictures`` what each of them sees in a
browser, at 1200 and (dark) 390 pixels, becomes tests/e2e/pages/pictures/WALK-PAGE-WIDTH.webp. Needs playwright and a Chromium for
that.
"""

from __future__ import annotations

import argparse
import io
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from bench.people.picture import ARGUMENTS, keep

TREE = Path(__file__).parents[2]
PICTURES = TREE / "tests" / "e2e" / "pages" / "pictures"
BYTES, TALLEST = 40_000, 1600
LOOP = """
import numpy as np
import marin

rng = np.random.default_rng(0)
weights = rng.normal(size=(4, 4))
with marin.start_run("least squares", recipe={"lr": 0.1, "seed": 0}) as run:
    for step in range(20):
        batch = rng.normal(size=(8, 4))
        error = batch @ weights
        weights -= 0.1 * batch.T @ error / 8
        run.log(step, loss=(error**2).mean(), batch=batch, norm=np.linalg.norm(weights))
        if step % 10 == 9:
            run.state({"weights": weights})
    np.save("weights.npy", weights)
    run.save("model", "weights.npy")
"""
TEXTS = "mkdir texts && for n in 1 2 3; do cat '{tree}'/docs/*.md '{tree}'/README.md >texts/$n.txt; done"


@dataclass(frozen=True)
class Walk:
    """``steps``: shell commands, one after the other; one that ends in ``&`` goes on till the end, and the next waits for its
    first line, which it has as ``$SAID``. ``pages``: what is looked at then, by the glob or the address where it lies."""

    steps: tuple[str, ...]
    pages: dict[str, str] = field(default_factory=dict)


TINY = "model=nano trainer=smoke"
SERVED = "python -u -c '{serve}' site &"
SERVE = (
    "import functools, http.server as h, sys; "
    's = h.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(h.SimpleHTTPRequestHandler, directory=sys.argv[1])); '
    'print(f"http://127.0.0.1:{s.server_port}", flush=True); s.serve_forever()'
)
WALKS = {
    "newcomer": Walk(
        (
            "git clone -q '{tree}' .",
            "make repro",
            'test -z "$(git status --short)"',
            ". .venv/bin/activate && marin verify latest",
            '. .venv/bin/activate && marin sample latest "The farmer"',
            '. .venv/bin/activate && marin sample latest "The farmer"',
            ". .venv/bin/activate && marin show latest",
            ". .venv/bin/activate && marin site site",
            ". .venv/bin/activate && marin ui --port 0 &",
        ),
        {"index": "site/index.html", "report": "site/runs/*/report.html", "seal": "site/runs/*/verification.html"},
    ),
    "researcher": Walk(
        (
            "marin init",
            TEXTS,
            f"marin train -m {TINY} dataset=files 'dataset.globs=[texts/*.txt]' tokenizer=bpe-2k tokenizer.vocab_size=600"
            " optimizer.learning_rate=0.006,0.02 seed=1,2",
            "marin ls",
            "marin compare --sweep latest",
            "marin train --continue latest optimizer.learning_rate=1e-4",
            "marin site site",
        ),
        {"index": "site/index.html", "sweep": "site/sweeps/*.html"},
    ),
    "loop": Walk(
        (
            "marin init",
            f"cat >train.py <<'END'\n{LOOP}END",
            "python train.py",
            "marin verify latest --by 'python train.py'",
            "marin show latest",
            "! marin export latest --hf model",
            "marin site site",
        ),
        {"report": "site/runs/*/report.html"},
    ),
    "doubter": Walk(
        (
            "mkdir -p publisher/home && cd publisher && export HOME=$PWD/home && marin init && "
            f"marin train {TINY} && marin publish latest --to ../site",
            SERVED,
            "mkdir fresh && cd fresh && marin verify $SAID; test $? = 3",  # nobody told whose key it is
            'cd fresh && marin verify $SAID --vkey "$(cat ../publisher/.marin/vkey)"',
        ),
        {"published": "$SAID/", "run": "site/runs/*/index.html", "judge": "$SAID/check.html"},
    ),
    "lab": Walk(
        (
            "mkdir -p ada/home bob/home && cd ada && HOME=$PWD/home marin init && HOME=$PWD/home marin ledger key new ada@desk",
            "cd ada && export HOME=$PWD/home && marin ledger serve --at 127.0.0.1:7429 --json &",
            "cd ada && HOME=$PWD/home marin ledger key invite 127.0.0.1:7429 | tail -1 >../invitation",
            "cd bob && HOME=$PWD/home marin ledger key join $(cat ../invitation) --as bob@gpu | tail -1 >../author",
            "cd ada && HOME=$PWD/home marin ledger key enrol $(cat ../author)",
            f"cd bob && HOME=$PWD/home MARIN_ROOT=ledger://127.0.0.1:7429 marin train {TINY}",
            "cd ada && HOME=$PWD/home marin ls",
            "cd ada && HOME=$PWD/home marin verify latest",
            "cd ada && HOME=$PWD/home marin ledger key revoke bob@gpu",
            "cd bob && ! HOME=$PWD/home MARIN_ROOT=ledger://127.0.0.1:7429 marin ls",
            "cd ada && HOME=$PWD/home marin site ../site",
        ),
        {"index": "site/index.html", "report": "site/runs/*/report.html"},
    ),
}


@contextmanager
def walked(name: str, folder: Path) -> Iterator[str]:
    """The steps of a walk in ``folder``, each told; what the last service said of itself while it still runs."""
    home = folder / "a home"
    home.mkdir(parents=True)
    place = folder / "a clone"
    place.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MARIN_", "VIRTUAL_ENV", "XDG_"))}
    environment = {**kept, "HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "SAID": ""}
    services: list[subprocess.Popen[str]] = []
    try:
        for step in WALKS[name].steps:
            command = step.replace("{tree}", str(TREE)).replace("{serve}", SERVE)
            began, used = time.monotonic(), processor()
            if step.endswith("&"):
                with (folder / "service.txt").open("w") as said:
                    service = subprocess.Popen(
                        ["bash", "-c", command[:-1]],
                        cwd=place,
                        env=environment,
                        stdout=subprocess.PIPE,
                        stderr=said,
                        text=True,
                        start_new_session=True,
                    )
                services.append(service)
                assert service.stdout is not None
                environment["SAID"] = service.stdout.readline().strip()
                status, out = service.poll() or 0, environment["SAID"]
            else:
                done = subprocess.run(
                    ["bash", "-c", command],
                    cwd=place,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    check=False,
                )
                status, out = done.returncode, done.stdout
            took, worked = time.monotonic() - began, processor() - used
            with (folder / "said.txt").open("a") as log:
                log.write(f"$ {step}\n{out}\n[{status}]\n\n")
            first = step.partition("\n")[0]
            sys.stdout.write(f"{name:<11}{status:>3} {took:8.1f} s {worked:7.1f} s  {first[:110]}\n")
            sys.stdout.flush()
            if status:
                sys.stdout.write("".join(f"           | {line}\n" for line in out.splitlines()[-6:]))
                break
        yield environment["SAID"]
    finally:
        for service in services:
            os.killpg(service.pid, signal.SIGTERM)
            service.wait()


def processor() -> float:
    """Seconds that commands took of a processor so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def look(name: str, folder: Path, said: str) -> None:
    """Pictures of a walk's pages."""
    from playwright.sync_api import sync_playwright

    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        for page_name, where in WALKS[name].pages.items():
            addresses = [where.replace("$SAID", said)]
            if not where.startswith("$SAID"):
                addresses = [path.as_uri() for path in sorted((folder / "a clone").glob(where))]
            for width in (1200, 390) if addresses else ():
                page = browser.new_page(viewport={"width": width, "height": 850})
                page.emulate_media(color_scheme="light" if width > 390 else "dark")
                page.set_default_timeout(600_000)
                page.goto(addresses[-1])
                page.wait_for_load_state("networkidle")
                picture = Image.open(io.BytesIO(page.screenshot(full_page=True)))
                shown = picture.crop((0, 0, picture.width, min(picture.height, TALLEST)))
                keep(PICTURES / f"{name}-{page_name}-{width}.webp", shown, most=BYTES)
                page.close()
        browser.close()


def main() -> None:
    """Walk, and look."""
    parser = argparse.ArgumentParser(prog="python -m bench.people.walks", description=__doc__)
    parser.add_argument("walks", nargs="*", metavar="WALK", default=list(WALKS))
    parser.add_argument(
        "--keep", required=True, type=Path, metavar="FOLDER", help="A new folder for homes and folders."
    )
    parser.add_argument("--pictures", action="store_true")
    options = parser.parse_args()
    for name in options.walks:
        folder = options.keep.resolve() / name
        with walked(name, folder) as said:
            if options.pictures:
                look(name, folder, said)


if __name__ == "__main__":
    main()
