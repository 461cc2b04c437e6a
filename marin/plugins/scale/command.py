"""`marin compile`: a recipe before the TPU's own compiler, without a TPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from marin.cli.options import argument, flag, option, takes
from marin.cli.output import print_json, say
from marin.cli.tables import print_fields, print_table
from marin.errors import UsageError
from marin.process.text import short
from marin.recipe.units import human_size

if TYPE_CHECKING:
    from marin.plugins.scale.compiled import Forecast


@dataclass(frozen=True)
class CompileOptions:
    """What `marin compile` takes."""

    overrides: tuple[str, ...] = argument("[GROUP=NAME | KEY=VALUE]...", nargs=-1)
    topology: str = option("T", "A slice: kind and shape, such as v5p:4x4x8 or v5e:16x16.", required=True)
    against: str | None = option("T", "Another slice of the same kind: are the computing programs the same?")
    stock: bool = flag("Compile the step as Levanter's trainer would shard it, too, and compare.")
    vocabulary: int | None = option("N", "Tokens.  [default: the recipe's tokenizer's]", least=2)
    as_json: bool = flag("Print one JSON object.", "--json")


@click.command(name="compile")
@takes(CompileOptions)
def compile(options: CompileOptions) -> None:
    """Compile a recipe's train step for a slice of TPUs that is not here: does it fit, what would it cost.

    The programs are those of `marin train`. Where the recipe does not name them, there is one logical shard for each chip
    (eight at least), one microbatch for each shard, and the kind of device is that of the slice; under profile=exact, one
    sequence for each chip. What was compiled once is kept.

    Exit status: 0 when it fits (and with --against computes by the same programs), 1 when not.

    \b
    Examples:
      marin compile model=llama-135m profile=tpu --topology v5e:2x4
      marin compile model=llama-8b profile=tpu --topology v5p:4x4x8 --against v5p:2x2x2 --stock --json
      marin compile model=qwen3-30b-a3b profile=exact arithmetic.gather=layer --topology v5p:4x4x8
    """
    from marin.plugins.scale.assumed import recipe_for
    from marin.plugins.scale.compiled import differing, forecast

    recipe, said = recipe_for(
        options.overrides, [options.topology, *([options.against] if options.against is not None else [])]
    )
    if options.stock and (recipe.model.sparse or not recipe.optimizer.elementwise):
        # Levanter has another dispatch for experts, and clips in another place: a ratio would be of something else.
        raise UsageError(
            "nothing to set beside",
            where="--stock",
            expected="a dense model by AdamW or Lion",
            found=f"{recipe.model.architecture} by {recipe.optimizer.name}",
            cure="leave --stock out",
        )
    tokens = options.vocabulary or recipe.vocabulary
    say(f"compiling for {options.topology}; a large model takes minutes", err=True)
    made = forecast(recipe, options.topology, tokens, stock=options.stock)
    other = forecast(recipe, options.against, tokens, moves=False) if options.against is not None else None
    (print_json if options.as_json else _print_fit)(_as_json(made, other, said, tokens))
    if not made.fits or (other is not None and differing(made.answer, other.answer)):
        raise click.exceptions.Exit(1)


def _as_json(made: Forecast, other: Forecast | None, assumed: list[str], vocabulary: int) -> dict[str, Any]:
    from marin.plugins.scale.compiled import KERNELS, bytes_received, identities

    theirs = identities(other.answer) if other is not None else {}
    answer, seconds = made.answer, made.seconds
    programs = []
    for one in answer.programs:
        row: dict[str, Any] = {
            "name": one.name,
            "computes": one.computes,
            "executions": one.executions,
            "identity": one.identity or None,
            "hbm_bytes": made.hbm(one),
            "estimated_cycles": one.cycles,
            "kernel_flops": one.kernels,
            "without_estimate": one.without_estimate,
            "collectives": [
                {
                    "kind": item.kind,
                    "dtype": item.dtype,
                    "bytes": item.times * bytes_received(item),
                    "devices": item.group or answer.chips,
                }
                for item in one.collectives
            ],
            "error": one.error or None,
        }
        if other is not None:
            row["equal"] = bool(one.identity) and one.identity == theirs.get(one.name)
        programs.append(row)
    return {
        "topology": made.topology,
        "against": other.topology if other is not None else None,
        "device_kind": answer.kind,
        "chips": answer.chips,
        "hbm_bytes_per_chip": made.hbm(made.largest),
        "hbm_bytes_of_chip": made.chip.hbm,
        "state_bytes_per_chip": answer.state,
        "largest_program": made.largest.name,
        "fits": made.fits,
        "cures": [] if made.fits else made.cures(),
        "flops": made.flops,
        "estimated_seconds": sum(seconds),
        "compute_seconds": seconds[0],
        "movement_seconds": seconds[1],
        "collective_bytes_per_chip": made.moved,
        "link_bytes_per_second": made.chip.link,
        "mfu": made.utilisation(seconds),
        "stock": _stock(made),
        "vocabulary": vocabulary,
        "assumed": assumed,
        "assumptions": {
            "hertz": made.chip.hertz,
            "peak_flops": made.chip.peak,
            "kernels_of_peak": KERNELS,
            "overlap": "none: computing, then moving",
        },
        "programs": programs,
    }


def _stock(made: Forecast) -> dict[str, Any] | None:
    stock, seconds, moved = made.answer.stock, made.stock_seconds, made.stock_moved
    if stock is None:
        return None
    found: dict[str, Any] = {"error": stock.error or None, "hbm_bytes_per_chip": stock.transient or stock.needed}
    if seconds is None or moved is None:
        return found
    ours = made.seconds
    mfu = made.utilisation(seconds)
    return found | {
        "compute_seconds": seconds[0],
        "movement_seconds": seconds[1],
        "collective_bytes_per_chip": moved,
        "mfu": mfu,
        "ratio": {
            "compute": ours[0] / seconds[0] if seconds[0] else None,
            "collective_bytes": made.moved / moved if moved else None,
            "mfu": made.utilisation(ours) / mfu if mfu else None,
        },
    }


def _print_fit(found: dict[str, Any]) -> None:
    needed, of = found["hbm_bytes_per_chip"], found["hbm_bytes_of_chip"]
    fields = [
        ("slice", f"{found['topology']}, {found['chips']} chips ({found['device_kind']})"),
        ("recipe", ", ".join([f"vocabulary {found['vocabulary']:,}", *found["assumed"]])),
        ("memory", f"{human_size(needed)} of {human_size(of)} a chip, in {found['largest_program']}"),
        ("state", f"{human_size(found['state_bytes_per_chip'])} a chip"),
        ("fits", "yes" if found["fits"] else "no: " + "; ".join(found["cures"])),
        (
            "step",
            f"{found['compute_seconds'] * 1e3:.3g} ms computing, {found['movement_seconds'] * 1e3:.3g} ms moving "
            f"{human_size(int(found['collective_bytes_per_chip']))} (estimates)",
        ),
        ("MFU", f"{found['mfu']:.1%} of the bfloat16 peak, {found['flops']:.3g} FLOPs of the model"),
    ]
    stock = found["stock"]
    if stock is not None and stock.get("ratio"):
        ratio = stock["ratio"]
        fields.append(
            (
                "beside stock",
                f"{ratio['compute']:.2f} of its computing, {ratio['collective_bytes']:.2f} of its bytes moved, "
                f"{ratio['mfu']:.2f} of its MFU ({stock['mfu']:.1%})",
            )
        )
    elif stock is not None:
        fields.append(("stock", stock["error"]))
    print_fields(fields)
    say()
    against = found["against"]
    print_table(
        ("program", "times", "memory", "cycles", "moves", "identity", *((f"on {against}",) if against else ())),
        [
            (
                one["name"],
                str(one["executions"]),
                one["error"] or human_size(one["hbm_bytes"]),
                f"{one['estimated_cycles']:,}",
                human_size(int(sum(item["bytes"] for item in one["collectives"]))),
                short(one["identity"] or ""),
                *((_beside(one),) if against else ()),
            )
            for one in found["programs"]
        ],
        empty="",
    )


def _beside(one: dict[str, Any]) -> str:
    if one["equal"]:
        return "the same"
    return "ANOTHER" if one["computes"] else "another"
