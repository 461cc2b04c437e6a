"""`marin compile`: a recipe before the TPU's own compiler, without a TPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from marin.cli.output import print_fields, print_json, print_table, say
from marin.process.text import short
from marin.recipe.units import human_size

if TYPE_CHECKING:
    from marin.plugins.scale.compiled import Forecast


@click.command(name="compile")
@click.argument("overrides", metavar="[GROUP=NAME | KEY=VALUE]...", nargs=-1)
@click.option("--topology", required=True, metavar="T", help="A slice: kind and shape, such as v5p:4x4x8 or v5e:16x16.")
@click.option("--against", metavar="T", help="Another slice of the same kind: are the computing programs the same?")
@click.option("--stock", is_flag=True, help="Compile the step as Levanter's trainer would shard it, too, and compare.")
@click.option(
    "--vocabulary", type=click.IntRange(min=2), metavar="N", help="Tokens.  [default: the recipe's tokenizer's]"
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def compile(
    overrides: tuple[str, ...], topology: str, against: str | None, stock: bool, vocabulary: int | None, as_json: bool
) -> None:
    """Compile a recipe's train step for a slice of TPUs that is not here: does it fit, what would it cost.

    The programs are those of `marin train`. Where the recipe does not name them, there is one logical shard for each chip
    (eight at least), one microbatch for each shard, and the kind of device is that of the slice. What was compiled once is kept.

    Exit status: 0 when it fits (and with --against computes by the same programs), 1 when not.

    \b
    Examples:
      marin compile model=llama-135m profile=tpu --topology v5e:2x4
      marin compile model=llama-8b profile=tpu --topology v5p:4x4x8 --against v5p:2x2x2 --stock --json
    """
    from marin.plugins.scale.assumed import recipe_for
    from marin.plugins.scale.compiled import differing, forecast

    recipe, said = recipe_for(overrides, [topology, *([against] if against is not None else [])])
    tokens = vocabulary or recipe.vocabulary
    say(f"compiling for {topology}; a large model takes minutes", err=True)
    made = forecast(recipe, topology, tokens, stock=stock)
    other = forecast(recipe, against, tokens, moves=False) if against is not None else None
    (print_json if as_json else _print_fit)(_as_json(made, other, said, tokens))
    if not made.fits or (other is not None and differing(made.answer, other.answer)):
        raise click.exceptions.Exit(1)


def _as_json(made: Forecast, other: Forecast | None, assumed: list[str], vocabulary: int) -> dict[str, Any]:
    from marin.plugins.scale.compiled import KERNELS, brought, identities

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
                    "bytes": item.times * brought(item),
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
