"""The notebooks of docs/notebooks: executed from top to bottom in an empty folder, with the outputs that they then show.

    python docs/site/notebooks.py          executes each and writes its outputs into it (`make notebooks`)

tests/documents/test_notebooks.py executes them by the same function and looks at what they find. An output that is a page in a
frame is left out of the file: places that show notebooks do not show frames, and its picture stays.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = PROJECT / "docs" / "notebooks"
SECONDS = 1200
"""One cell may take so long: it trains."""


def execute(path: Path, folder: Path) -> Any:
    """The notebook at ``path`` as it is after every cell was executed in ``folder``, with keys and caches of its own."""
    notebook = nbformat.read(path, as_version=4)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.metadata = nbformat.from_dict({"kernelspec": kernel, "language_info": {"name": "python"}})
    with _alone(folder):
        NotebookClient(
            notebook,
            timeout=SECONDS,
            kernel_name="python3",
            coalesce_streams=True,  # what a cell prints is one text, however slowly it comes
            resources={"metadata": {"path": folder}},
        ).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [shown(output) for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """With nothing of this user's: no keys, no root, no settings of a notebook server."""
    own = {
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_STATE_HOME": str(folder / "state"),
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_DATA_DIR": str(folder / "jupyter"),
        "TMPDIR": str(folder),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "110",
    }
    before = dict(os.environ)
    os.environ.update(own)
    for name in ("MARIN_ROOT", "MARIN_KEY"):
        os.environ.pop(name, None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def shown(output: Any) -> Any:
    """An output as it is kept."""
    data = output.get("data", {})
    if "<iframe" in data.get("text/html", ""):
        del data["text/html"]
    output.pop("transient", None)
    return output


def main() -> None:
    """Execute each notebook and write it back."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        with tempfile.TemporaryDirectory(prefix="marin-notebook-") as folder:
            done = execute(path, Path(folder))
        nbformat.write(done, path)
        sys.stderr.write(f"{path.name}: {sum(cell.cell_type == 'code' for cell in done.cells)} cells executed\n")


if __name__ == "__main__":
    main()
