"""From a jax function to a program of exact operations, by a list of what is allowed.

The jaxpr is read after differentiation, so a gradient is read like anything else; Levanter's model stays as it is. What
only names, shards or nests (``jit``, ``checkpoint``, custom derivatives) is dissolved; what has several forms (division,
squares, splits) is written in one. A primitive that is not on the list has no exact form and is refused by name.

What a function would have computed while it is read (``jax.ensure_compile_time_eval``: Levanter's rotary frequencies) is
read like the rest. It would be computed by the device that is here, as that device rounds, and be a constant of the
program: an H200 gave two of 32 frequencies other bits than a processor, and so was another program (bench/RESULTS.md).

Nor does it matter how jax was configured, or what it traced before: settings that change what is traced are fixed while a
function is read, and jax's caches keep what was traced then apart (``tracing``, where jax's private names are).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal

from marin.errors import UsageError
from marin.plugins.exact.program import BOOL, DTYPES, FLOAT, INT, NEAREST, UINT, Factors, Form, Json, Operation, Program
from marin.plugins.exact.tracing import as_decided, loop_parts, named_if_gone, written_at

FLOATS = {
    *(
        "add",
        "sub",
        "mul",
        "div",
        "max",
        "min",
        "neg",
        "abs",
        "sign",
        "sqrt",
        "rsqrt",
        "exp",
        "log",
        "log1p",
        "tanh",
        "logistic",
    ),
    *("erf", "erf_inv", "sin", "cos", "pow", "floor", "ceil", "nextafter", "is_finite"),
    *("eq", "ne", "lt", "le", "gt", "ge"),
}
"""Element by element on float32."""
WHOLES = {
    *("add", "sub", "mul", "neg", "abs", "sign", "max", "min", "and", "or", "xor", "not", "shift_left"),
    *("shift_right_logical", "shift_right_arithmetic", "eq", "ne", "lt", "le", "gt", "ge"),
    "rem",
}
"""Element by element on integers and booleans."""
ALIASES = {
    *("stop_gradient", "name", "copy", "copy_p", "optimization_barrier", "sharding_constraint", "random_wrap"),
    *("random_unwrap", "pvary", "mesh_cast", "reshard"),
}
"""What leaves every bit as it is."""
CALLS = {
    **dict.fromkeys(("jit", "pjit", "closed_call", "remat2", "checkpoint", "remat", "custom_vjp_call_jaxpr"), "jaxpr"),
    **dict.fromkeys(("core_call", "custom_jvp_call", "custom_vjp_call"), "call_jaxpr"),
}
"""What only nests, and where it keeps what it executes."""
CURE = "write it with operations that docs/exact.md lists, or train under another profile"


def read(function: Callable[..., Any], *examples: Any, factors: Factors = NEAREST) -> tuple[Program, Any]:
    """The program of ``function`` for arguments shaped like ``examples``, and its result as a tree of ``ShapeDtypeStruct``.
    Inputs and outputs are the leaves of the trees. ``factors``: how those of contractions are rounded.

    Raises:
        UsageError: an operation has no exact form; the error names it.
    """
    try:
        with as_decided():
            closed, shape = jax.make_jaxpr(function, return_shape=True)(*examples)
    except (
        jax.errors.ConcretizationTypeError,
        jax.errors.TracerArrayConversionError,
        jax.errors.TracerIntegerConversionError,
    ) as error:
        raise no_exact_form(
            "a number that the function asks for while it is read",
            "there are none yet, not even of what it would compute ahead; make it of NumPy's numbers",
        ) from error
    return program_of(closed, factors), shape


def program_of(closed: Any, factors: Factors = NEAREST) -> Program:
    """The program of a closed jaxpr.

    Raises:
        UsageError: as of :func:`read`.
    """
    reader = _Reader(factors)
    inputs = [reader.value(_form(var.aval, "input")) for var in closed.jaxpr.invars]
    outputs = reader.inline(closed.jaxpr, closed.consts, inputs)
    return Program(
        tuple(reader.forms), tuple(inputs), tuple(reader.constants), tuple(reader.operations), tuple(outputs)
    )


def no_exact_form(name: str, reason: str, *, where: str = "profile exact") -> UsageError:
    """The error for what has no exact form."""
    return UsageError(
        "an operation has no exact form",
        where=where,
        expected="an operation of docs/exact.md",
        found=f"{name}: {reason}",
        cure=CURE,
    )


def _form(aval: Any, name: str) -> Form:
    if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key):
        if "fry" not in str(aval.dtype):
            raise no_exact_form(name, f"a key of the generator {aval.dtype}")
        return Form(UINT, (*aval.shape, 2))
    if str(aval.dtype) not in DTYPES:
        raise no_exact_form(name, f"values of {aval.dtype}, where there are only {', '.join(DTYPES)}")
    return Form(str(aval.dtype), tuple(map(int, aval.shape)))


class _Reader:
    """One list of operations in the making. Bodies of loops are read by readers of their own."""

    def __init__(self, factors: Factors) -> None:
        self.factors = factors
        self.forms: list[Form] = []
        self.constants: list[tuple[int, np.ndarray]] = []
        self.operations: list[Operation] = []
        self._literals: dict[tuple[str, tuple[int, ...], bytes], int] = {}
        self._source = ""

    def value(self, form: Form) -> int:
        self.forms.append(form)
        return len(self.forms) - 1

    def constant(self, value: Any) -> int:
        if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = np.asarray(jax.random.key_data(value))
        array = np.asarray(value)
        if str(array.dtype) not in DTYPES:
            raise no_exact_form("constant", f"values of {array.dtype}")
        if isinstance(value, jax.Array):
            raise no_exact_form(
                f"constant {array.dtype}{list(array.shape)}",
                "a device computed it while the function was read, as it rounds; make it of NumPy's numbers, or an argument",
            )
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self._literals:
            self._literals[key] = self.value(Form(str(array.dtype), array.shape))
            self.constants.append((self._literals[key], array))
        return self._literals[key]

    def scalar(self, dtype: str, value: float) -> int:
        return self.constant(np.asarray(value, dtype))

    def put(
        self, name: str, inputs: Sequence[int], *forms: Form, bodies: tuple[Program, ...] = (), **settings: Json
    ) -> list[int]:
        outputs = [self.value(form) for form in forms]
        self.operations.append(Operation(name, tuple(inputs), tuple(outputs), settings, bodies, self._source))
        return outputs

    def inline(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[int]) -> list[int]:
        """Read all equations; the numbers of what comes out."""
        values: dict[Any, int] = dict(zip(jaxpr.invars, inputs, strict=True))
        values |= {var: self.constant(value) for var, value in zip(jaxpr.constvars, consts, strict=True)}

        def at(atom: Any) -> int:
            if isinstance(atom, Literal):
                given = isinstance(atom.val, jax.Array)
                return self.constant(atom.val if given else np.asarray(atom.val, atom.aval.dtype))
            return values[atom]

        for equation in jaxpr.eqns:
            taken = [at(atom) for atom in equation.invars]
            with named_if_gone(equation.primitive.name):
                outputs = self._equation(equation, taken)
            values |= dict(zip(equation.outvars, outputs, strict=True))
        return [at(atom) for atom in jaxpr.outvars]

    def _equation(self, equation: Any, inputs: list[int]) -> list[int]:
        name, given = equation.primitive.name, equation.params
        if name in CALLS:
            inner = (
                given[CALLS[name]]
                if CALLS[name] in given
                else given["call_jaxpr" if "call_jaxpr" in given else "fun_jaxpr"]
            )
            return self.inline(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), inputs)
        if name in ALIASES:
            return inputs
        forms = [_form(var.aval, name) for var in equation.outvars]
        self._source = written_at(equation)
        rule = RULES.get(name)
        if rule is not None:
            return rule(self, equation, inputs, forms)
        operand = self.forms[inputs[-1]] if inputs else Form(BOOL, ())
        if forms and name in (FLOATS if FLOAT in (operand.dtype, forms[0].dtype) else WHOLES):
            return self.put(name, self.alike(inputs, forms[0].shape), forms[0])
        raise no_exact_form(
            f"{name} of {', '.join(str(var.aval.str_short()) for var in equation.invars)}",
            "not on the list",
            where=written_at(equation),
        )

    def alike(self, inputs: Sequence[int], shape: tuple[int, ...]) -> list[int]:
        """Scalars broadcast to ``shape``, for operations element by element."""
        return [self.broadcast(one, shape) if self.forms[one].shape != shape else one for one in inputs]

    def broadcast(self, one: int, shape: tuple[int, ...]) -> int:
        """A scalar, or axes of size one, repeated."""
        given = self.forms[one].shape
        if given and not (len(given) == len(shape) and all(a in (1, b) for a, b in zip(given, shape, strict=True))):
            raise no_exact_form("broadcast", f"{given} to {shape}")
        return self.put("broadcast", [one], Form(self.forms[one].dtype, shape), axes=_integers(range(len(given))))[0]

    def reshape(self, one: int, shape: tuple[int, ...]) -> int:
        return (
            one if self.forms[one].shape == shape else self.put("reshape", [one], Form(self.forms[one].dtype, shape))[0]
        )

    def body(self, closed: Any) -> Program:
        return program_of(closed, self.factors)


type Rule = Callable[[_Reader, Any, list[int], list[Form]], list[int]]


def _integers(values: Sequence[Any]) -> Json:
    return [int(value) for value in values]


def _reshape(reader: _Reader, _: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    return [reader.reshape(inputs[0], forms[0].shape)]


def _broadcast(reader: _Reader, equation: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    return reader.put("broadcast", inputs[:1], forms[0], axes=_integers(equation.params["broadcast_dimensions"]))


def _by_axes(name: str, axes: str) -> Rule:
    return lambda reader, equation, inputs, forms: reader.put(
        name, inputs, forms[0], axes=_integers(equation.params[axes])
    )


def _unchanged(name: str) -> Rule:
    return lambda reader, _, inputs, forms: reader.put(name, inputs, forms[0])


def _concatenate(reader: _Reader, equation: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    return reader.put("concatenate", inputs, forms[0], axis=int(equation.params["dimension"]))


def _slice(reader: _Reader, equation: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    given = equation.params
    strides = given["strides"] or (1,) * len(given["start_indices"])
    return reader.put(
        "slice",
        inputs,
        forms[0],
        start=_integers(given["start_indices"]),
        end=_integers(given["limit_indices"]),
        step=_integers(strides),
    )


def _pieces(reader: _Reader, one: int, axis: int, sizes: Sequence[int]) -> list[int]:
    form, at, found = reader.forms[one], 0, []
    for size in sizes:
        start, end = [0] * len(form.shape), list(form.shape)
        start[axis], end[axis] = at, at + size
        shape = tuple(e - s for s, e in zip(start, end, strict=True))
        found += reader.put(
            "slice", [one], Form(form.dtype, shape), start=_integers(start), end=_integers(end), step=[1] * len(start)
        )
        at += size
    return found


def _split(reader: _Reader, equation: Any, inputs: list[int], _: list[Form]) -> list[int]:
    return _pieces(reader, inputs[0], int(equation.params["axis"]), [int(size) for size in equation.params["sizes"]])


def _unstack(reader: _Reader, equation: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    pieces = _pieces(reader, inputs[0], int(equation.params["axis"]), [1] * len(forms))
    return [reader.reshape(piece, form.shape) for piece, form in zip(pieces, forms, strict=True)]


def _pad(reader: _Reader, equation: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    return reader.put("pad", inputs, forms[0], padding=[_integers(each) for each in equation.params["padding_config"]])


def _iota(reader: _Reader, equation: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    if inputs:
        raise no_exact_form("iota", "a shape that is known at run time only")
    return reader.put("iota", [], forms[0], axis=int(equation.params["dimension"]))


def _empty(reader: _Reader, _: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    return [reader.broadcast(reader.scalar(forms[0].dtype, 0), forms[0].shape)]


def _convert(reader: _Reader, _: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    return inputs if reader.forms[inputs[0]].dtype == forms[0].dtype else reader.put("convert", inputs, forms[0])


def _bitcast(reader: _Reader, _: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    if BOOL in (reader.forms[inputs[0]].dtype, forms[0].dtype):
        raise no_exact_form("bitcast_convert_type", "of booleans")
    return reader.put("bitcast", inputs, forms[0])


def _round(reader: _Reader, equation: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    if int(equation.params["rounding_method"]) != int(jax.lax.RoundingMethod.TO_NEAREST_EVEN):
        raise no_exact_form("round", "away from zero; only ties to even")
    return reader.put("round", inputs, forms[0])


def _square(reader: _Reader, _: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    return reader.put("mul", [inputs[0], inputs[0]], forms[0])


def _one_minus_square(reader: _Reader, _: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    one = reader.broadcast(reader.scalar(FLOAT, 1), forms[0].shape) if forms[0].shape else reader.scalar(FLOAT, 1)
    return reader.put("sub", [one, *_square(reader, None, inputs, forms)], forms[0])


def _integer_pow(reader: _Reader, equation: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    """Products from the lowest bit of the exponent up; of a negative one the quotient of 1 and that."""
    exponent, form = int(equation.params["y"]), forms[0]
    if exponent < 0 and form.dtype != FLOAT:
        raise no_exact_form("integer_pow", "a negative power of whole numbers")
    one = reader.alike([reader.scalar(form.dtype, 1)], form.shape)[0]
    left, base, result = abs(exponent), inputs[0], -1
    while left:
        if left & 1:
            result = base if result < 0 else reader.put("mul", [result, base], form)[0]
        left >>= 1
        if left:
            (base,) = reader.put("mul", [base, base], form)
    result = one if result < 0 else result
    return reader.put("div", [one, result], form) if exponent < 0 else [result]


def _clamp(reader: _Reader, _: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    low, value, high = reader.alike(inputs, forms[0].shape)
    (raised,) = reader.put("max", [low, value], forms[0])
    return reader.put("min", [raised, high], forms[0])


def _select(reader: _Reader, _: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    if len(inputs) != 3 or reader.forms[inputs[0]].dtype != BOOL:
        raise no_exact_form("select_n", "between more than two cases")
    return reader.put("select", reader.alike(inputs, forms[0].shape), forms[0])


def _reduction(name: str, whole_only: bool = False) -> Rule:
    def rule(reader: _Reader, equation: Any, inputs: list[int], forms: list[Form]) -> list[int]:
        if whole_only and forms[0].dtype == FLOAT:
            raise no_exact_form(equation.primitive.name, "of float32")
        axes = sorted(int(axis) for axis in equation.params["axes"])
        if not math.prod(reader.forms[inputs[0]].shape[axis] for axis in axes):
            raise no_exact_form(equation.primitive.name, "over nothing")
        return reader.put(name, inputs, forms[0], axes=_integers(axes))

    return rule


def _argument(name: str) -> Rule:
    def rule(reader: _Reader, equation: Any, inputs: list[int], forms: list[Form]) -> list[int]:
        return reader.put(name, inputs, forms[0], axis=int(equation.params["axes"][0]))

    return rule


def _cumsum(reader: _Reader, equation: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    if forms[0].dtype == FLOAT:
        raise no_exact_form("cumsum", "of float32")
    return reader.put(
        "cumsum", inputs, forms[0], axis=int(equation.params["axis"]), reverse=bool(equation.params["reverse"])
    )


def _dot(reader: _Reader, equation: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    ((left, right), (left_batch, right_batch)) = equation.params["dimension_numbers"]
    if any(reader.forms[one].dtype != FLOAT for one in inputs):
        raise no_exact_form("dot_general", "of whole numbers")
    count = math.prod(reader.forms[inputs[0]].shape[axis] for axis in left)
    if not 0 < count <= 2**23:
        raise no_exact_form("dot_general", "over more than 2**23 elements" if count else "over nothing")
    return reader.put(
        "dot",
        inputs,
        forms[0],
        summed=[_integers(left), _integers(right)],
        batch=[_integers(left_batch), _integers(right_batch)],
        **reader.factors.settings,
    )


def _mode(mode: Any) -> str:
    name = jax.lax.GatherScatterMode.from_any(mode).name if not hasattr(mode, "name") else mode.name
    known = {"FILL_OR_DROP": "fill", "CLIP": "clip", "PROMISE_IN_BOUNDS": "clip"}
    if name not in known:
        raise no_exact_form("gather or scatter", f"of mode {name}")
    return known[name]


def _gather(reader: _Reader, equation: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    given, numbers = equation.params, equation.params["dimension_numbers"]
    fill, dtype, mode = given["fill_value"], forms[0].dtype, _mode(given["mode"])
    if fill is None:
        fill = {FLOAT: math.nan, INT: -(2**31), UINT: 2**32 - 1, BOOL: True}[dtype]
    word = np.asarray(fill, dtype).reshape(1)
    bits = int(word.astype(np.uint32)[0] if dtype == BOOL else word.view(np.uint32)[0])
    return reader.put(
        "gather",
        inputs,
        forms[0],
        mode=mode,
        fill=bits if mode == "fill" else None,
        window=_integers(numbers.offset_dims),
        dropped=_integers(numbers.collapsed_slice_dims),
        indexed=_integers(numbers.start_index_map),
        batch=_integers(numbers.operand_batching_dims),
        index_batch=_integers(numbers.start_indices_batching_dims),
        sizes=_integers(given["slice_sizes"]),
    )


def _scatter(name: str) -> Rule:
    def rule(reader: _Reader, equation: Any, inputs: list[int], forms: list[Form]) -> list[int]:
        given, numbers = equation.params, equation.params["dimension_numbers"]
        if name == "scatter" and not given["unique_indices"]:
            raise no_exact_form("scatter", "one of several values for a place; say unique_indices")
        return reader.put(
            name,
            inputs,
            forms[0],
            mode=_mode(given["mode"]),
            window=_integers(numbers.update_window_dims),
            dropped=_integers(numbers.inserted_window_dims),
            indexed=_integers(numbers.scatter_dims_to_operand_dims),
            batch=_integers(numbers.operand_batching_dims),
            index_batch=_integers(numbers.scatter_indices_batching_dims),
        )

    return rule


def _scan(reader: _Reader, equation: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    given = equation.params
    constants, carried = loop_parts(given, inputs)
    return reader.put(
        "scan",
        inputs,
        *forms,
        bodies=(reader.body(given["jaxpr"]),),
        constants=constants,
        carried=carried,
        length=int(given["length"]),
        reverse=bool(given["reverse"]),
    )


def _while(reader: _Reader, equation: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    given = equation.params
    return reader.put(
        "while",
        inputs,
        *forms,
        bodies=(reader.body(given["cond_jaxpr"]), reader.body(given["body_jaxpr"])),
        asked=int(given["cond_nconsts"]),
        done=int(given["body_nconsts"]),
    )


def _cond(reader: _Reader, equation: Any, inputs: list[int], forms: list[Form]) -> list[int]:
    branches = equation.params["branches"]
    chosen = next((value for number, value in reader.constants if number == inputs[0]), None)
    if chosen is not None:
        branch = branches[min(max(int(chosen), 0), len(branches) - 1)]
        return reader.inline(branch.jaxpr, branch.consts, inputs[1:])
    return reader.put("cond", inputs, *forms, bodies=tuple(reader.body(branch) for branch in branches))


def _platform(reader: _Reader, equation: Any, _: list[int], forms: list[Form]) -> list[int]:
    """Where code differs by platform, the part for any platform is taken; where there is none, that for CPUs."""
    platforms = list(equation.params["platforms"])
    wanted = [number for number, each in enumerate(platforms) if each is None]
    wanted += [number for number, each in enumerate(platforms) if each is not None and "cpu" in each]
    if not wanted:
        raise no_exact_form("platform_index", "nothing for any platform")
    return [reader.scalar(forms[0].dtype, wanted[0])]


def _random(name: str) -> Rule:
    def rule(reader: _Reader, equation: Any, inputs: list[int], forms: list[Form]) -> list[int]:
        given = equation.params
        if given.get("bit_width", 32) != 32:
            raise no_exact_form("random_bits", f"of {given['bit_width']} bits")
        drawn = [int(size) for size in given.get("shape", ())]
        return reader.put(name, inputs, forms[0], shape=_integers(drawn))

    return rule


RULES: dict[str, Rule] = {
    **dict.fromkeys(("reshape", "squeeze", "expand_dims"), _reshape),
    "broadcast_in_dim": _broadcast,
    "transpose": _by_axes("transpose", "permutation"),
    "concatenate": _concatenate,
    "slice": _slice,
    "split": _split,
    "unstack": _unstack,
    "dynamic_slice": _unchanged("dynamic_slice"),
    "dynamic_update_slice": _unchanged("dynamic_update_slice"),
    "pad": _pad,
    "iota": _iota,
    **dict.fromkeys(("empty", "empty2"), _empty),
    "rev": _by_axes("rev", "dimensions"),
    "convert_element_type": _convert,
    "bitcast_convert_type": _bitcast,
    "round": _round,
    "square": _square,
    "one_minus_square": _one_minus_square,
    "integer_pow": _integer_pow,
    "clamp": _clamp,
    "select_n": _select,
    "add_any": _unchanged("add"),
    "reduce_sum": _reduction("sum"),
    "reduce_max": _reduction("maximum"),
    "reduce_min": _reduction("minimum"),
    "reduce_and": _reduction("all", whole_only=True),
    "reduce_or": _reduction("any", whole_only=True),
    "argmax": _argument("argmax"),
    "cumsum": _cumsum,
    "dot_general": _dot,
    "gather": _gather,
    "scatter": _scatter("scatter"),
    **dict.fromkeys(("scatter-add", "scatter_add"), _scatter("scatter_add")),
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "platform_index": _platform,
    "random_seed": _random("seed"),
    "random_fold_in": _random("fold"),
    "random_split": _random("draw_keys"),
    "random_bits": _random("draw"),
}
"""How each primitive that is not element by element is written."""
