"""The package without the product around it: it could be published alone."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import ledger
from ledger import reference

FOLDER = Path(ledger.__file__).parent


def test_the_readme_is_executed_where_only_the_package_is(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "ledger", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "train.txt").write_text("a cat", encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", (FOLDER / "README.md").read_text("utf-8"), re.S)
    elsewhere = "\nimport sys\nassert 'marin' not in sys.modules and ledger.__file__.startswith(sys.argv[1])\n"
    program = f"import ledger\n{block}{elsewhere}"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    body, findings, index = done.stdout.splitlines()
    assert body.startswith("{'artifact': 'sha256:") and (findings, index) == ("[]", "0")


def test_the_reference_is_generated() -> None:
    page = reference.page()
    assert (FOLDER / "REFERENCE.md").read_text("utf-8") == page, "run `make docs`"
    assert "value of type `_" not in page, "what Python keeps a name in says nothing of the name"


def test_no_message_names_the_product() -> None:
    """Names of formats and of variables are what they were released as; sentences speak of the ledger alone."""
    released = r"marin\.(?:blob/v1|packfile/1)|MARIN_(?:KEY_PASSPHRASE|BROKER)|/ \"marin\" /"
    found = [
        f"{file.relative_to(FOLDER)}:{number} {line.strip()}"
        for file in FOLDER.rglob("*.py")
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
        if re.search("marin", re.sub(released, "", line), re.I)
    ]
    assert found == []
