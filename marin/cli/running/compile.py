"""`marin compile`: a recipe before the TPU's own compiler, without a TPU."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from marin.cli.output import print_fields, print_json, print_table, say
from marin.errors import UsageError
from marin.recipe.units import human_size

if TYPE_CHECKING:
    from marin.scale.compiled import Forecast


@click.command(name="compile")
@click.argument("overrides", metavar="[GROUP=NAME | KEY=VALUE]...", nargs=-1)
@click.option("--topology", required=True, metavar="T", help="A slice: kind and shape, such as v5p:4x4x8 or v5e:16x16.")
@click.option("--against", metavar="T", help="Another slice of the same kind: are the computing programs the same?")
@click.option(
    "--vocabulary", type=click.IntRange(min=2), metavar="N", help="Tokens.  [default: the recipe's tokenizer's]"
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def compile(
    overrides: tuple[str, ...], topology: str, against: str | None, vocabulary: int | None, as_json: bool
) -> None:
    """Compile a recipe's train step for a slice of TPUs that is not here: does it fit, what would it cost.

    The programs are those of `marin train`. Where the recipe does not name them, logical shards and batch are one for each chip,
    and the kind of device is that of the slice.

    Exit status: 0 when it fits (and with --against computes by the same programs), 1 when not.

    \b
    Examples:
      marin compile model=llama-135m profile=tpu --topology v5e:2x4
      marin compile model=llama-8b profile=tpu --topology v5p:4x4x8 --against v5p:2x2x2 --json
    """
    from marin.recipe.composition import compose
    from marin.scale.chips import chip_of, count_of
    from marin.scale.compiled import check_environment, forecast

    chip = chip_of(topology)
    if against is not None and chip_of(against, "--against") is not chip:
        raise UsageError(
            "slices of two kinds",
            where="--against",
            expected=f"a slice of {topology.partition(':')[0]}",
            found=against,
            cure="programs are compared within a kind: each kind has its own",
        )
    check_environment(os.environ)
    named = dict(text.lstrip("+").partition("=")[::2] for text in overrides)
    if named.get("profile", "tpu") != "tpu":
        raise UsageError(
            "only the profile of TPUs is compiled for TPUs",
            where="profile",
            expected="tpu",
            found=named["profile"],
            cure="say profile=tpu, or nothing",
        )
    chips = max(count_of(topology), count_of(against) if against else 1)
    assumed = {"profile": "tpu", "arithmetic.device_kind": f"'{chip.kind}'"}
    if chips > 8:
        assumed |= {"arithmetic.logical_shards": str(chips), "trainer.batch_size": str(chips)}
    said = [f"{name}={value}" for name, value in assumed.items() if name not in named]
    recipe = compose([*overrides, *said]).recipe
    tokens = vocabulary or recipe.tokenizer.vocab_size
    say(f"compiling for {topology}; a large model takes minutes", err=True)
    made = forecast(recipe, topology, tokens)
    other = forecast(recipe, against, tokens) if against is not None else None
    if as_json:
        print_json(_as_json(made, other, said, tokens))
    else:
        _print(made, other, said, tokens)
    if not made.fits or (other is not None and _differ(made, other)):
        raise click.exceptions.Exit(1)


def _differ(made: Forecast, other: Forecast) -> list[str]:
    from marin.scale.compiled import differing

    return differing(made.answer, other.answer)


def _as_json(made: Forecast, other: Forecast | None, assumed: list[str], vocabulary: int) -> dict[str, Any]:
    from marin.scale.compiled import COMPUTES

    theirs = {one.name: one.identity for one in other.answer.programs} if other is not None else {}
    programs = []
    for one in made.answer.programs:
        row: dict[str, Any] = {
            "name": one.name,
            "computes": one.name in COMPUTES,
            "identity": one.identity or None,
            "hbm_bytes": made.hbm[one.name] if not one.error else None,
            "temporary_bytes": one.temporary_bytes,
            "estimated_cycles": one.cycles,
            "without_estimate": one.without_estimate,
            "collectives": [
                {"kind": item.kind, "dtype": item.dtype, "bytes": item.bytes, "times": item.times}
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
        "device_kind": made.answer.kind,
        "chips": made.answer.chips,
        "hbm_bytes_per_chip": made.hbm[made.largest],
        "hbm_bytes_of_chip": made.chip.hbm,
        "state_bytes_per_chip": made.state_bytes,
        "fits": made.fits,
        "flops": made.flops,
        "estimated_seconds": sum(made.seconds),
        "compute_seconds": made.seconds[0],
        "movement_seconds": made.seconds[1],
        "mfu": made.utilisation,
        "vocabulary": vocabulary,
        "assumed": assumed,
        "programs": programs,
    }


def _print(made: Forecast, other: Forecast | None, assumed: list[str], vocabulary: int) -> None:
    from marin.scale.compiled import COMPUTES

    needed = made.hbm[made.largest]
    print_fields(
        [
            ("slice", f"{made.topology}, {made.answer.chips} chips ({made.answer.kind})"),
            ("recipe", ", ".join([f"vocabulary {vocabulary:,}", *assumed])),
            ("memory", f"{human_size(needed)} of {human_size(made.chip.hbm)} a chip, in {made.largest}"),
            ("fits", "yes" if made.fits else "no: more chips, rematerialisation or fewer sequences at once would help"),
            ("step", f"{made.seconds[0] * 1e3:.3g} ms computing, {made.seconds[1] * 1e3:.3g} ms moving (estimates)"),
            ("MFU", f"{made.utilisation:.1%} of the bfloat16 peak, {made.flops:.3g} FLOPs of the model"),
        ]
    )
    say()
    theirs = {one.name: one.identity for one in other.answer.programs} if other is not None else {}
    print_table(
        ("program", "memory", "cycles", "moves", "identity", *((f"on {other.topology}",) if other is not None else ())),
        [
            (
                one.name,
                human_size(made.hbm[one.name]) if not one.error else one.error,
                f"{one.cycles:,}",
                human_size(int(sum(item.bytes * item.times for item in one.collectives))),
                one.identity[7:19],
                *(
                    (
                        "the same"
                        if one.identity == theirs.get(one.name)
                        else "ANOTHER"
                        if one.name in COMPUTES
                        else "another",
                    )
                    if other is not None
                    else ()
                ),
            )
            for one in made.answer.programs
        ],
        empty="",
    )
