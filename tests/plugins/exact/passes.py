"""Which of XLA's passes made a product that meets a sum unguarded (marin/plugins/exact/guarded.py names no pass).

    python tests/plugins/exact/passes.py PROGRAM...

executes a Python program with the text of every module dumped after each pass that changed it, reads the texts of every
module in their order, and prints a JSON line for each pass after which there are products that were not there before:
module, pass and products. ``before_optimizations``: it was written so. A product that a fusion took in is found where it
arose, because moved and fused ones are followed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from marin.plugins.exact.guarded import unguarded

DUMP = "--xla_dump_hlo_pass_re=.* --xla_dump_hlo_as_text --xla_dump_to="
_TEXT = re.compile(r"^(module_\d+\.[^.]+)\.(?:(\d+)\.(.+)|(before_optimizations)|(cpu_after_optimizations))\.txt$")
NONE = ["no product was recognised"]


@dataclass(frozen=True)
class Made:
    """``after``: the pipeline and pass after which ``products`` were unguarded for the first time."""

    module: str
    after: str
    products: tuple[str, ...]


def made_by(folder: Path) -> Iterator[Made]:
    """Of every dumped module, the passes after which there are more unguarded products than before."""
    modules: dict[str, list[tuple[float, str, Path]]] = defaultdict(list)
    for path in folder.iterdir():
        if match := _TEXT.match(path.name):
            module, number, after, first, last = match.groups()
            place = float(number) if number else (-1.0 if first else float("inf"))
            modules[module].append((place, _named(after or first or last), path))
    for module, texts in sorted(modules.items()):
        known = 0
        for _, after, path in sorted(texts):
            found = unguarded(path.read_text("utf-8"))
            found = [] if found == NONE else found
            if len(found) > known:
                yield Made(module, after, tuple(found))
            known = len(found)


def _named(text: str) -> str:
    """Pipeline and pass, of what stands between number and ending."""
    return text.partition(".before_")[0].replace(".after_", ": ")


def passes(program: Sequence[str]) -> list[Made]:
    """Execute a Python program (its file and arguments) and say of everything that it compiled which pass unguarded it."""
    with TemporaryDirectory(prefix="passes-") as folder:
        flags = f"{os.environ.get('XLA_FLAGS', '')} {DUMP}{folder}".strip()
        variables = {**os.environ, "XLA_FLAGS": flags, "JAX_ENABLE_COMPILATION_CACHE": "false"}
        subprocess.run([sys.executable, *program], env=variables, check=True, stdout=subprocess.DEVNULL)
        return list(made_by(Path(folder)))


if __name__ == "__main__":
    for one in passes(sys.argv[1:]):
        sys.stdout.write(json.dumps(asdict(one)) + "\n")
