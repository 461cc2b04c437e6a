"""Settings are read, and the first difference among digests is found, whatever comes after it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.errors import UsageError
from marin.recipe.schema import Arithmetic
from marin.verify.segments.explanation import Record, Setting, first_difference, first_true
from marin.verify.segments.ordering import by_execution


def test_a_setting_replaces_flags_of_its_names() -> None:
    setting = Setting.parse("devices=8,isa=SSE4_2,flag=--xla_new=1,threads=1", 2)
    assert (setting.devices, setting.threads) == (8, 1)
    assert setting.arithmetic(Arithmetic()).xla_flags == (
        "--xla_cpu_enable_platform_dependent_math=false",
        "--xla_disable_hlo_passes=transpose-folding",
        "--xla_new=1",
        "--xla_cpu_max_isa=SSE4_2",
    )
    flags = setting.environment(Arithmetic())["XLA_FLAGS"].split()
    assert "--xla_force_host_platform_device_count=8" in flags
    assert Setting.parse("isa=AVX", 2).devices == 2


@pytest.mark.parametrize("text", ["devices=0", "devices=x", "speed=1", "flag=xla", "isa="])
def test_wrong_settings_are_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError):
        Setting.parse(text, 1)


@given(st.integers(1, 40), st.data())
def test_the_first_difference_is_found(count: int, data: st.DataObject) -> None:
    """Operations in a row: each takes the one before; a difference goes on into all that follow."""
    at = data.draw(st.integers(0, count - 1))

    def row(mark: str) -> list[Record]:
        said = [f"{i}{mark if i >= at else ''}" for i in range(count)]
        return [Record(str(i), [said[i - 1] if i else "in"], [said[i]]) for i in range(count)]

    pair = first_difference(row("a"), row("b"))
    assert pair is not None
    assert pair[0].name == str(at)
    assert first_difference(row("a"), row("a")) is None


@given(st.integers(1, 200), st.data())
def test_bisection_finds_the_beginning(count: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(1, count))
    asked: list[int] = []

    def differs(number: int) -> bool:
        asked.append(number)
        return number >= at

    assert first_true(count, differs) == at
    assert len(asked) <= count.bit_length() + 2
    assert first_true(count, lambda number: False) is None


def test_tensors_in_the_order_of_execution() -> None:
    stacked = "model/transformer/layers/stacked/"
    wanted = [
        "step",
        "key",
        "model/embeddings/token_embeddings/weight",
        f"{stacked}input_layernorm/weight",
        f"{stacked}self_attn/q_proj/weight",
        f"{stacked}self_attn/o_proj/weight",
        f"{stacked}post_attention_layernorm/weight",
        f"{stacked}mlp/gate_proj/weight",
        f"{stacked}mlp/down_proj/weight",
        "model/transformer/norm/weight",
        "model/lm_head/weight",
        "moments/count",
        "moments/inner_state/0/mu/embeddings/token_embeddings/weight",
        "moments/inner_state/0/mu/lm_head/weight",
        "moments/inner_state/0/nu/embeddings/token_embeddings/weight",
    ]
    assert by_execution(sorted(wanted)) == tuple(wanted)
