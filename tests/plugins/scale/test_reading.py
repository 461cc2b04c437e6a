"""Optimised programs are read as they are written, and a question that cannot be asked is answered in words."""

from __future__ import annotations

from pathlib import Path

import jax
import pytest

from marin.errors import Unsupported, UsageError
from marin.plugins.scale import child
from marin.plugins.scale.chips import CHIPS, bounds_of, chip_of, count_of
from marin.plugins.scale.compiled import Forecast, bytes_received, differing
from marin.plugins.scale.hlo import Collective, Program
from marin.plugins.scale.question import ProgramAnswer, Question, SlicePrograms
from marin.process.arithmetic import check_variables

TEXT = """HloModule jit_f, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

%limit.1 (q.1: (s32[], f32[8])) -> pred[] {
  %q.1 = (s32[], f32[8]{0}) parameter(0)
  %c.1 = s32[]{:T(128)} constant(5)
  %i.1 = s32[] get-tuple-element(%q.1), index=0
  ROOT %l.1 = pred[] compare(%i.1, %c.1), direction=LT
}

%body.1 (p.1: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p.1 = (s32[], f32[8]{0}) parameter(0)
  %x.1 = f32[8]{0} get-tuple-element(%p.1), index=1
  %y.1 = f32[8]{0} multiply(%x.1, %x.1), metadata={op_name="a"}, backend_config={"estimated_cycles":"10"}
  %g.1 = bf16[16,4]{1,0} all-gather(%y.1), channel_id=3, dimensions={0}
  ROOT %t.1 = (s32[], f32[8]{0}) tuple(%x.1, %y.1)
}

ENTRY %main.2 (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %w = (s32[], f32[8]{0}) while(%a), condition=%limit.1, body=%body.1
  %r = u32[3]{0} all-reduce(%a), channel_id=1
  %b = f32[8]{0} get-tuple-element(%w), index=1
  ROOT %o = f32[8]{0} add(%b, %a), backend_config={"estimated_cycles":"7"}
}
"""


def test_loops_count_as_often_as_they_turn() -> None:
    program = Program.read(TEXT)
    assert program.entry == "main.2" and program.cycles == (5 * 10 + 7, 0)
    moved = [(one.kind, one.dtype, one.bytes, one.times) for one in program.collectives]
    assert moved == [("all-gather", "bf16", 128.0, 5), ("all-reduce", "u32", 12.0, 1)]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (("%y.1", "%other"), True),
        (('op_name="a"', 'op_name="b"'), True),
        (("channel_id=3", "channel_id=9"), True),
        (("multiply(", "subtract("), False),
        (("add(%b, %a)", "add(%b, %b)"), False),
        (("dimensions={0}", "dimensions={1}"), True),
        (("constant(5)", "constant(6)"), False),
    ],
    ids=["name", "source", "channel", "operation", "operand", "unused", "turns"],
)
def test_the_identity_is_of_what_is_computed(change: tuple[str, str], same: bool) -> None:
    assert (Program.read(TEXT.replace(*change)).identity == Program.read(TEXT).identity) is same


KERNEL = """HloModule jit_own, is_scheduled=true

ENTRY %main.1 (x.1: bf16[2,3,1024,64]) -> bf16[2,3,1024,64] {
  %x.1 = bf16[2,3,1024,64]{3,2,1,0} parameter(0)
  %k.1 = bf16[2,3,1024,64]{3,2,1,0} custom-call(%x.1), custom_call_target="tpu_custom_call", operand_layout_constraints={s8[1,1]{1,0}, bf16[2,3,1024,64]{3,2,1,0}}, frontend_attributes={kernel_metadata={
"xprof_metadata":"{\\"block_q\\": 512}"
}}, metadata={op_name="jit(own)/splash_mqa_dq_no_residuals/pallas_call"}, backend_config={"custom_call_config":{"body":"TUw"}}
  ROOT %y.1 = bf16[2,3,1024,64]{3,2,1,0} negate(%k.1), backend_config={"estimated_cycles":"9"}
}
"""  # noqa: E501


def test_a_kernel_counts_by_its_shapes_and_does_not_end_a_program() -> None:
    """Its attributes have lines of their own, one of which begins as the end of a computation does."""
    program = Program.read(KERNEL)
    assert program.cycles == (9, 0)
    assert program.kernel_flops == 3 * 2 * (2 * 3 * 1024 * 64) * 1024 * 3 / 4  # of four blocks three are causal
    assert Program.read(KERNEL.replace("TUw", "TUx")).identity != program.identity
    assert Program.read(KERNEL.replace("splash_mqa_dq", "another")).cycles == (9, 1)


def computing(identity: str) -> ProgramAnswer:
    return ProgramAnswer(name="gradient", computes=True, identity=identity)


def test_only_computing_programs_are_compared() -> None:
    one, other = (
        SlicePrograms(
            "TPU v5",
            4,
            0,
            0,
            0,
            [
                ProgramAnswer(name="gradient", computes=True, identity=gradient),
                ProgramAnswer(name="gather", identity=gather),
            ],
        )
        for gradient, gather in (("a", "b"), ("a", "c"))
    )
    assert differing(one, other) == []
    assert differing(one, SlicePrograms("TPU v5", 4, 0, 0, 0, [computing("z")])) == ["gradient"]


@pytest.mark.parametrize(
    ("kind", "group", "links"),
    [
        ("all-gather", 128, 6),
        ("all-reduce", 128, 6),
        ("all-gather", 16, 4),  # a plane of the torus
        ("all-gather", 8, 2),  # a ring
        ("all-to-all", 128, 6 / (1 + 1 + 2)),  # each word passes four chips, on average
    ],
)
def test_what_moves_along_some_axes_has_their_links_alone(kind: str, group: int, links: float) -> None:
    """A chip of v5p has six links, two an axis."""
    item = Collective(kind, "u16", 1e9, 1, group)
    answer = SlicePrograms("TPU v5", 128, 0, 0, 0, [ProgramAnswer(name="gather_layer", collectives=[item])])
    _, moving = Forecast("v5p:4x4x8", CHIPS["v5p"], answer, 1.0, by_layer=True).seconds
    assert moving == pytest.approx(bytes_received(item) / (CHIPS["v5p"].link * links / 6))


def test_slices_have_names() -> None:
    assert count_of("v5p:4x4x8") == 128 and chip_of("v5p:4x4x8") is CHIPS["v5p"]
    assert bounds_of("v5e:1x1") == (1, 1, 1) and bounds_of("v5e:2x4") is None
    with pytest.raises(UsageError, match="did you mean v5p:4x4x8"):
        chip_of("v5p:4x4x9")


def test_what_changes_programs_is_refused_by_name() -> None:
    check_variables({"PATH": "/bin", "XLA_FLAGS": ""})
    with pytest.raises(Unsupported, match="LIBTPU_INIT_ARGS"):
        check_variables({"LIBTPU_INIT_ARGS": "--xla_tpu_x=1"}, "LIBTPU_INIT_ARGS")
    with pytest.raises(Unsupported, match="LEVANTER_CE_XLA_FAST_BWD"):
        check_variables({"LEVANTER_CE_XLA_FAST_BWD": "0"})


class TooLarge:
    """A lowered program that the compiler does not make."""

    def as_text(self) -> str:
        return "module @jit_own"

    def compile(self) -> None:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Used 20.00G of 15.75G hbm. Exceeded by 4.25G.\nmore")


@pytest.mark.parametrize("there", ["a file in place of the folder", "a folder in place of the answer"])
def test_an_answer_that_cannot_be_kept_is_an_answer(
    there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "version", lambda name: "0")
    folder = tmp_path / "tpu"
    kept = child.AnswerCache(Question({}, "v5e:2x4", 64, kept=str(folder)))
    made = kept.compiled(TooLarge())
    (path,) = folder.iterdir()
    path.unlink()
    if there == "a file in place of the folder":
        folder.rmdir()
        folder.touch()
    else:
        path.mkdir()
    assert kept.compiled(TooLarge()) == made and made.needed == 20 * 2**30 and "Exceeded by" in made.error


def test_what_lies_on_a_chip_is_counted_once_of_a_program_that_is_not_made_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its arguments are in the 20 GiB that the compiler says, and 6 GiB of them in what lies there."""
    monkeypatch.setattr(child, "version", lambda name: "0")
    made = child.beside(child.AnswerCache(Question({}, "v5e:2x4", 64)).compiled(TooLarge()), 6 * 2**30)
    answer = SlicePrograms("TPU v5 lite", 8, 6 * 2**30, 2**30, 0, [made])
    found = Forecast("v5e:2x4", CHIPS["v5e"], answer, 1.0, by_layer=False)
    assert not found.fits and found.hbm(made) == 21 * 2**30
