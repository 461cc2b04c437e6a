"""A traced program executed operation by operation: every value is computed by its own small compiled program.

Calls, checkpoints and custom derivatives are entered, loops are executed turn by turn, branches are chosen, so that
what is visited is single primitives. The values need not be those of the program compiled as a whole: a compiler fuses,
and may contract a product and a sum. :func:`prefix` is for that: everything up to one operation compiled as one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal

Visit = Callable[[str, Any, Sequence[Any], Sequence[Any]], None]
"""Called with the path of an operation, its equation, and the values that went in and came out."""

_CALLS = {
    "pjit": "jaxpr",
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "custom_lin": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
}


def execute(program: ClosedJaxpr, arguments: Sequence[Any], visit: Visit, path: str = "") -> list[Any]:
    """The results of ``program``, with every primitive visited in order of execution."""
    return _run(program.jaxpr, program.consts, arguments, visit, path)


def _run(jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any], visit: Visit, path: str) -> list[Any]:
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(
        zip(jaxpr.invars, arguments, strict=True)
    )

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for number, equation in enumerate(jaxpr.eqns):
        name = f"{path}{number}:{equation.primitive.name}"
        given = [read(atom) for atom in equation.invars]
        made = _equation(equation, given, visit, name)
        values.update(zip(equation.outvars, made, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _equation(equation: Any, given: list[Any], visit: Visit, name: str) -> list[Any]:
    primitive, params = equation.primitive, equation.params
    if primitive.name in _CALLS:
        jaxpr, consts = _opened(params[_CALLS[primitive.name]])
        return _run(jaxpr, consts, given, visit, f"{name}/")
    if primitive.name == "scan":
        return _scan(params, given, visit, name)
    if primitive.name == "cond":
        chosen = params["branches"][int(jnp.clip(given[0], 0, len(params["branches"]) - 1))]
        return execute(chosen, given[1:], visit, f"{name}/")
    if primitive.name == "while":
        return _while(params, given, visit, name)
    with equation.ctx.manager:
        made = primitive.bind(*given, **primitive.get_bind_params(params))
    results = list(made) if primitive.multiple_results else [made]
    visit(name, equation, given, results)
    return results


def _opened(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    return (jaxpr.jaxpr, jaxpr.consts) if hasattr(jaxpr, "consts") else (jaxpr, ())  # an open one has no constants


def _scan(params: Any, given: list[Any], visit: Visit, name: str) -> list[Any]:
    fixed, carry, pieces = map(list, params["ft_in"].update(given).unpack())
    length = params["length"]
    order = range(length - 1, -1, -1) if params["reverse"] else range(length)
    rows: dict[int, list[Any]] = {}
    for turn in order:
        made = execute(params["jaxpr"], [*fixed, *carry, *(piece[turn] for piece in pieces)], visit, f"{name}[{turn}]/")
        carry, rows[turn] = map(list, params["ft_out"].update(made).unpack())
    stacked = [jnp.stack([rows[turn][i] for turn in range(length)]) for i in range(len(rows[0]))] if length else []
    return [*carry, *stacked]


def _while(params: Any, given: list[Any], visit: Visit, name: str) -> list[Any]:
    conditions, bodies = params["cond_nconsts"], params["body_nconsts"]
    of_condition, of_body = given[:conditions], given[conditions : conditions + bodies]
    carry, turn = given[conditions + bodies :], 0
    while bool(execute(params["cond_jaxpr"], [*of_condition, *carry], visit, f"{name}[{turn}]?/")[0]):
        carry = execute(params["body_jaxpr"], [*of_body, *carry], visit, f"{name}[{turn}]/")
        turn += 1
    return carry


def length(program: ClosedJaxpr) -> int:
    """How many equations ``program`` has at its top."""
    return len(_flat(program).jaxpr.eqns)


def prefix(program: ClosedJaxpr, arguments: Sequence[Any], count: int) -> tuple[Any, list[Any]]:
    """The equation number ``count`` (from 1) at the top of ``program`` with its results, when all up to it is one
    compiled program."""
    flat = _flat(program).jaxpr
    equation = flat.eqns[count - 1]

    @jax.jit
    def compiled(*values: Any) -> list[Any]:
        known: dict[Any, Any] = dict(zip(flat.constvars, _flat(program).consts, strict=True))
        known |= dict(zip(flat.invars, values, strict=True))
        for each in flat.eqns[:count]:
            given = [atom.val if isinstance(atom, Literal) else known[atom] for atom in each.invars]
            with each.ctx.manager:
                made = each.primitive.bind(*given, **each.primitive.get_bind_params(each.params))
            known |= dict(zip(each.outvars, made if each.primitive.multiple_results else [made], strict=True))
        return [known[var] for var in equation.outvars if var in known]

    return equation, list(compiled(*arguments))


def _flat(program: ClosedJaxpr) -> ClosedJaxpr:
    """The program itself, or what its only equation calls."""
    while len(program.jaxpr.eqns) == 1 and (name := program.jaxpr.eqns[0].primitive.name) in ("pjit", "jit"):
        program = program.jaxpr.eqns[0].params[_CALLS[name]]
    return program
