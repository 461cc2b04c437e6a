"""docs/exact.md defines every operation, with the constants that the code has."""

from __future__ import annotations

import re
from pathlib import Path

from marin.plugins.exact import compiled, integers, known, reference
from marin.plugins.exact.program import LEAST, Program

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "exact.md").read_text("utf-8")


def test_every_operation_is_defined() -> None:
    assert compiled.OPERATIONS - set(re.findall(r"`([a-z_0-9]+)`", PAGE)) == set()


def test_the_settings_of_every_operation_are_defined() -> None:
    """Those that the reader writes, as the page's table has them."""
    rows = re.findall(r"^\| (`.+?) \| (.+) \|$", PAGE.split("Settings:")[1].strip().split("\n\n")[0], re.M)
    said = {name: set(re.findall(r"`(\w+)`", text)) for names, text in rows for name in re.findall(r"`(\w+)`", names)}
    written: dict[str, set[str]] = {}

    def read(program: Program) -> None:
        for one in program.operations:
            written.setdefault(one.name, set()).update(one.settings)
            for body in one.bodies:
                read(body)

    for case in known.cases().values():
        read(case.made("chosen").program)
    assert len(written) > 40 and {"gather", "scatter_add", "scan", "dot"} <= set(written)
    lacking = {name: settings - said.get(name, set()) for name, settings in written.items()}
    assert {name: settings for name, settings in lacking.items() if settings} == {}


def test_the_constants_are_those_of_the_page() -> None:
    assert (integers.BITS, integers.LARGEST, integers.FACTOR_FLOOR) == (15, 32639, -45)
    assert (integers.BITS, integers.LARGEST, integers.FACTOR_FLOOR) == (
        reference.FACTOR_BITS,
        reference.FACTOR_LARGEST,
        reference.FACTOR_FLOOR,
    )
    assert (integers.ADDEND_BITS, integers.ROOM, integers.ADDEND_FLOOR) == (30, 52, -90)
    assert (integers.ADDEND_BITS, integers.ROOM, integers.ADDEND_FLOOR) == (
        reference.ADDEND_BITS,
        reference.ADDEND_ROOM,
        reference.ADDEND_FLOOR,
    )
    assert LEAST == 2.0**-125
    for said in (
        "32639",
        "least whole number with every |x| below 2^e, but at least -90",
        "but at least -45",
        "min(30, 52",
    ):
        assert said in PAGE
