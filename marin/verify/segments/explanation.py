"""Why two settings give other bits: the settings, the answer, and the search for it among digests. Pure.

A setting is what may differ between two executions of one recipe: devices, instruction set, compiler flags, threads,
and the interpreter (and with it the versions). Two settings are two processes, because a compiler reads its flags once;
each gives digests, and the first record whose inputs agree and whose output does not is the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from marin.errors import UsageError
from marin.process.arithmetic import settings as variables
from marin.recipe.schema import Arithmetic, Execution

ISA_FLAG = "--xla_cpu_max_isa"


class Record(msgspec.Struct, frozen=True):
    """One thing that was executed: what, digests of what went in and came out, where it stands in the source.
    ``tensors``: names of what came out, where they have some."""

    name: str
    inputs: list[str]
    outputs: list[str]
    source: str = ""
    shape: str = ""
    tensors: list[str] = []


@dataclass(frozen=True)
class Setting:
    """How a step is executed. ``isa`` and ``flags`` replace those of the recipe; ``python``: another interpreter."""

    name: str
    devices: int = 1
    isa: str | None = None
    flags: tuple[str, ...] = ()
    threads: int | None = None
    python: str | None = None

    @classmethod
    def parse(cls, text: str, devices: int) -> Setting:
        """``devices=8,isa=AVX512,flag=--xla_x=y,threads=1,python=/path``, each optional, ``flag`` as often as needed.

        Raises:
            UsageError: a key is unknown or a value is not a number.
        """
        values: dict[str, str] = {}
        flags = []
        for part in filter(None, text.split(",")):
            key, _, value = part.partition("=")
            if key == "flag" and value.startswith("--"):
                flags.append(value)
            elif (key in ("devices", "threads") and value.isdecimal() and int(value) > 0) or (
                key in ("isa", "python") and value
            ):
                values[key] = value
            else:
                raise UsageError(
                    "not a setting",
                    where=f"--setting {text}",
                    found=part,
                    expected="devices=N, threads=N, isa=NAME, flag=--XLA_FLAG=VALUE, python=PATH, by commas",
                    cure="for example --setting devices=8,isa=SSE4_2",
                )
        return cls(
            text,
            int(values.get("devices", devices)),
            values.get("isa"),
            tuple(flags),
            int(values["threads"]) if "threads" in values else None,
            values.get("python"),
        )

    def arithmetic(self, recorded: Arithmetic) -> Arithmetic:
        """The recipe's contract with this setting's changes. A flag replaces the one of the same name."""
        given = [*self.flags, *([f"{ISA_FLAG}={self.isa}"] if self.isa else [])]
        names = {flag.partition("=")[0] for flag in given}
        kept = [flag for flag in recorded.xla_flags if flag.partition("=")[0] not in names]
        return msgspec.structs.replace(recorded, xla_flags=(*kept, *given), threads=self.threads or recorded.threads)

    def environment(self, recorded: Arithmetic) -> dict[str, str]:
        """Variables that put it in force."""
        return variables(self.arithmetic(recorded), Execution(devices=self.devices))


@dataclass(frozen=True)
class Explanation:
    """What differs first. ``level``: ``cause`` (recipe, data, program or environment, before any bits), ``operation``
    (one operation alone), ``fusion`` (the first operation whose value differs when everything up to it is compiled as
    one), ``program`` (a compiled program, and no operation in it), ``none`` (both settings give the same bits)."""

    step: int
    settings: tuple[str, str]
    level: Literal["cause", "operation", "fusion", "program", "none"]
    lines: tuple[str, ...]
    program: str = ""
    operation: str = ""
    source: str = ""
    digests: tuple[str, str] = ("", "")
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """As ``marin verify --json`` prints it."""
        return {
            "step": self.step,
            "settings": list(self.settings),
            "level": self.level,
            "program": self.program,
            "operation": self.operation,
            "source": self.source,
            "digests": list(self.digests),
            "lines": list(self.lines),
            "seconds": round(self.seconds, 3),
        }


def first_difference(one: Sequence[Record], other: Sequence[Record]) -> tuple[Record, Record] | None:
    """The first pair of records of one name whose inputs agree and whose outputs do not.

    Records of one execution only (other devices add in other places) are passed over.
    """
    theirs = {record.name: record for record in other}
    for mine in one:
        match = theirs.get(mine.name)
        if match is not None and mine.inputs == match.inputs and mine.outputs != match.outputs:
            return mine, match
    return None


def first_true(count: int, differs: Callable[[int], bool]) -> int | None:
    """A number n in ``1..count`` with ``differs(n)`` and not ``differs(n-1)``, by bisection; None when
    ``differs(count)`` does not hold. ``differs(0)`` is taken as false."""
    if count == 0 or not differs(count):
        return None
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if differs(middle) else (middle, high)
    return high
