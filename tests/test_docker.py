"""The image's recipe as text: no engine runs where the tests do, so what can be checked without one is checked here."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
LINES = re.sub(r"\\\n", " ", (PROJECT / "docker" / "Dockerfile").read_text(encoding="utf-8")).splitlines()
STEPS = [line.split(maxsplit=1) for line in LINES if line and not line.startswith("#")]


def test_everything_that_is_copied_is_in_the_repository() -> None:
    sources = [source for word, rest in STEPS if word == "COPY" for source in rest.split()[:-1]]
    assert sources
    assert [source for source in sources if not (PROJECT / source).exists()] == []


def test_what_the_environment_script_reads_is_copied() -> None:
    copied = " ".join(rest for word, rest in STEPS if word == "COPY").split()
    assert {"pyproject.toml", "requirements.lock", ".ci", "Makefile", "ledger", "marin"} <= set(copied)


def test_the_python_is_one_that_the_lock_is_for() -> None:
    (image,) = (rest for word, rest in STEPS if word == "FROM")
    wanted = (PROJECT / ".python-version").read_text(encoding="utf-8").strip()
    assert image.startswith(f"python:{wanted}-")


def test_no_secret_and_no_address_is_baked_in() -> None:
    text = "\n".join(LINES)
    assert not re.search(r"https?://|--index-url|PASSW|TOKEN|\.pem", text)
