"""Comparisons are pure: whatever single thing is changed in a record, its train step and its tensors are named."""

from __future__ import annotations

import math
import struct
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import digest_bytes
from marin.errors import Unsupported
from marin.execution.phases import successor
from marin.recipe.schema import GrammarDataset, Recipe, from_mapping
from marin.record.events import OF_COMPLETIONS, TrainSegment
from marin.verify.judges.training import too_long
from marin.verify.segments import compare
from marin.verify.segments.compare import ReplayedSegment

TENSORS = ("model/embeddings", "model/layers/0", "moments/0")


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


def trace(steps: int) -> bytes:
    return b"".join(struct.pack("<2I", 7 * i, 11 * i + 1) for i in range(steps * len(TENSORS)))


def recorded(start: int, end: int) -> TrainSegment:
    steps = range(start, end)
    return TrainSegment(
        run="r",
        start=start,
        end=end,
        losses=[float(i + 1).hex() for i in steps],
        batches=[digest(100 + i) for i in steps],
        fingerprints=[digest(200 + i) for i in steps],
        start_state=digest(start),
        end_state=digest(end),
        trace=digest_bytes(trace(end - start)),
    )


def found(segment: TrainSegment) -> ReplayedSegment:
    return ReplayedSegment(
        losses=segment.losses,
        batches=segment.batches,
        fingerprints=segment.fingerprints,
        start_state=segment.start_state,
        end_state=segment.end_state,
        trace=trace(segment.end - segment.start),
    )


def changed(segment: TrainSegment, **values: object) -> TrainSegment:
    return msgspec.structs.replace(segment, **values)


def test_equal_records_do_not_differ() -> None:
    segment = recorded(3, 8)
    assert compare.segment(segment, found(segment), trace(5), TENSORS) is None
    assert compare.chain([recorded(0, 3), segment], 8, digest(8)) is None


MEASURES = ("train/grad_norm", "router/entropy", "router/largest_share", "router/idle_experts", *OF_COMPLETIONS)


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("offset", [0, 2, 4])
def test_a_measurement_that_no_replay_makes_is_found_at_its_step(name: str, offset: int) -> None:
    segment, values = recorded(3, 8), [0.5, 0.25, 3.0, 1.0, 0.125]
    made = replace(found(segment), measured={name: values})
    said = {step: value.hex() for step, value in enumerate(values, 3)}
    assert compare.segment(segment, made, trace(5), TENSORS, (), {name: said}) is None
    assert compare.segment(segment, made, trace(5), TENSORS, (), {name: {5: said[5]}}) is None, "not all was recorded"
    forged = said | {3 + offset: (values[offset] + 2.0**-30).hex()}
    divergence = compare.segment(segment, made, trace(5), TENSORS, (), {name: forged})
    assert divergence is not None and divergence.step == 3 + offset
    assert (divergence.expected, divergence.found) == (forged[3 + offset], said[3 + offset])
    assert divergence.explanation == f"{name}: the recorded measurement is not what the step gives"


def test_a_logarithm_may_be_rounded_otherwise_and_nothing_else() -> None:
    segment = recorded(3, 4)
    for name in MEASURES:
        made = replace(found(segment), measured={name: [0.75]})
        near = compare.segment(segment, made, trace(1), TENSORS, (), {name: {3: math.nextafter(0.75, 1.0).hex()}})
        assert (near is None) == (name == "router/entropy")


@given(st.integers(0, 4), st.sampled_from(["losses", "batches", "fingerprints"]))
def test_one_changed_item_is_found_at_its_step(offset: int, field: str) -> None:
    honest = recorded(3, 8)
    values = list(getattr(honest, field))
    values[offset] = "0x1.8p+7" if field == "losses" else digest(999)
    divergence = compare.segment(changed(honest, **{field: values}), found(honest), trace(5), TENSORS)
    assert divergence is not None
    assert divergence.step == 3 + offset
    assert divergence.expected == values[offset]


@given(st.integers(0, 4), st.sets(st.integers(0, 2), min_size=1))
def test_tensors_are_named_by_the_traces(offset: int, which: set[int]) -> None:
    honest = recorded(3, 8)
    prints = list(honest.fingerprints)
    prints[offset] = digest(999)
    data = bytearray(trace(5))
    for tensor in which:
        data[(offset * len(TENSORS) + tensor) * 8] ^= 1
    divergence = compare.segment(changed(honest, fingerprints=prints), found(honest), bytes(data), TENSORS)
    assert divergence is not None
    assert (divergence.step, divergence.tensors) == (3 + offset, tuple(TENSORS[i] for i in sorted(which)))


def test_data_is_named_before_the_state() -> None:
    honest = recorded(0, 3)
    forged = changed(
        honest, batches=[digest(1), *honest.batches[1:]], fingerprints=[digest(2), *honest.fingerprints[1:]]
    )
    divergence = compare.segment(forged, found(honest), trace(3), TENSORS)
    assert divergence is not None and "data" in divergence.explanation


def test_a_state_that_the_steps_do_not_lead_to() -> None:
    honest = recorded(0, 3)
    divergence = compare.segment(changed(honest, end_state=digest(77)), found(honest), trace(3), TENSORS)
    assert divergence is not None
    assert (divergence.step, divergence.expected, divergence.found) == (2, digest(77), digest(3))


def test_a_trace_that_is_gone_names_no_tensors() -> None:
    assert compare.trace_difference(None, trace(3), 0, TENSORS) == ()
    assert compare.trace_difference(trace(2), trace(3), 0, TENSORS) == ()


@pytest.mark.parametrize(
    ("segments", "step"),
    [
        ([recorded(0, 3), recorded(4, 8)], 3),  # one step dropped
        ([recorded(3, 8)], 0),  # the beginning dropped
        ([recorded(3, 8), recorded(0, 3)], 0),  # swapped
        ([recorded(0, 3)], 3),  # the end dropped
        ([], 0),
        ([recorded(0, 3), changed(recorded(3, 8), start_state=digest(55))], 3),  # another state in the middle
        ([recorded(0, 3), changed(recorded(3, 8), losses=["0x1.0p+0"])], 3),  # fewer losses than steps
        ([recorded(0, 3), changed(recorded(3, 8), end_state=digest(56))], 7),  # another output
    ],
)
def test_a_broken_chain_is_named(segments: list[TrainSegment], step: int) -> None:
    divergence = compare.chain(segments, 8, digest(8))
    assert divergence is not None
    assert divergence.step == step
    assert divergence.describe().startswith(f"train step {step}: ")


def test_a_recorded_trace_is_compared_also_where_its_bytes_are_kept_back() -> None:
    segment = changed(recorded(3, 8), trace=digest(9))
    divergence = compare.segment(segment, found(segment), None, TENSORS)
    assert divergence is not None
    assert divergence.expected == digest(9)


def test_programs_that_an_older_release_did_not_record_are_no_difference() -> None:
    recorded = {"functions": {"gradient": "a", "update": "b"}, "threads": 8}
    assert compare.programs(recorded, {"functions": {"gradient": "a", "update": "b", "fold": "c"}, "threads": 8}) == []
    found = compare.programs(recorded, {"functions": {"gradient": "x", "fold": "c"}, "threads": 8})
    assert found == ["functions.gradient: recorded a, here x", "functions.update: recorded b, here null"]


OPTIMISED = {"optimised": {"layer": "sha256:a", "update": "sha256:b"}, "device_kind": "TPU v5", "compiler": "0.0.48.1"}


def test_what_the_compiler_made_is_compared_where_it_is_recorded() -> None:
    versions = {"functions": {"layer": "x"}, "jax": "0.9"}
    assert compare.programs(versions, versions | OPTIMISED) == [], "an older release did not record it"
    assert compare.compiled(versions | OPTIMISED, {"jax": "0.9"} | OPTIMISED) == []
    there = OPTIMISED | {"compiler": "0.0.40", "optimised": {"layer": "sha256:a", "update": "sha256:c"}}
    found = ["compiler: recorded 0.0.40, here 0.0.48.1", "optimised.update: recorded sha256:c, here sha256:b"]
    assert compare.compiled(versions | there, {"jax": "0.9"} | OPTIMISED) == found
    assert compare.programs(versions | there, versions | OPTIMISED) == found


@pytest.mark.parametrize("profile", ["portable-cpu", "tpu"])
def test_another_program_is_told_before_and_refused_where_the_profile_promises_one_compiler(
    profile: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from marin.verify.jax import replay

    monkeypatch.setattr(replay, "compiled_identity", lambda _: {"jax": "0.9"} | OPTIMISED)
    training: Any = SimpleNamespace(recipe=SimpleNamespace(arithmetic=SimpleNamespace(profile=profile)))
    for same in ({}, {"functions": {"layer": "x"}, "jax": "0.9"} | OPTIMISED):
        replay.same_program(same, training)
    assert not caplog.records
    other = {"jax": "0.9"} | OPTIMISED | {"device_kind": "TPU v4"}
    with pytest.raises(Unsupported, match="device_kind") if profile == "tpu" else nullcontext():
        replay.same_program(other, training)
    assert [record.getMessage() for record in caplog.records] == [
        "another program: device_kind: recorded TPU v4, here TPU v5"
    ]


def test_differences_name_paths() -> None:
    assert compare.differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}) == ["a.c: recorded 2, here 3"]
    assert compare.differences({"a": 1}, {}) == ["a: recorded 1, here null"]
    assert compare.differences([1, 2], [1, 2]) == []


def test_found_is_a_plain_value() -> None:
    segment = found(recorded(0, 1))
    assert replace(segment) == segment


def of_steps(steps: int, most: int | None) -> Recipe:
    """A recipe of train steps of 4 sequences of 16 tokens, and of so many epochs at most."""
    trainer = {"num_steps": steps, "batch_size": 4, "steps_per_segment": 1, "most_epochs": most}
    arithmetic = {"logical_shards": 2, "microbatch_size": 1}
    return from_mapping({"trainer": trainer, "model": {"seq_len": 16}, "arithmetic": arithmetic}, where="test")


@pytest.mark.parametrize(("steps", "most", "tokens"), [(20, 2, 640), (21, None, 640), (21, 2, 704)])
def test_as_many_epochs_as_are_allowed_are_fine(steps: int, most: int | None, tokens: int) -> None:
    assert too_long(of_steps(steps, most), tokens) is None


def test_one_train_step_more_is_a_difference() -> None:
    found = too_long(of_steps(21, 2), 640)
    assert found is not None and "20 train steps at most, 2 epochs of 640 tokens" in found.describe()
    assert "found 21" in found.describe()


def in_another_order() -> list[Recipe]:
    """The text of :func:`of_steps`, by another seed, in another cut, by another name."""
    first = of_steps(20, 2)
    return [
        msgspec.structs.replace(first, seed=1),
        msgspec.structs.replace(first, model=msgspec.structs.replace(first.model, seq_len=8)),
        msgspec.structs.replace(first, dataset=GrammarDataset(name="b")),
    ]


def test_a_phase_that_reads_the_text_in_another_order_does_not_begin_to_count_anew() -> None:
    """Twenty train steps were two epochs."""
    half = successor(of_steps(10, 2), of_steps(10, 2))
    assert too_long(half, 640) is None and half.phase is not None and not half.phase.uncounted
    found = too_long(successor(of_steps(11, 2), of_steps(10, 2)), 640)
    assert found is not None and "9 train steps at most" in found.describe()
    for again in in_another_order():
        found = too_long(successor(of_steps(20, None), again), 640)
        assert found is not None and "80 sequences that it does not count" in found.describe()
