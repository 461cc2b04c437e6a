"""`marin compile`: what cannot be compiled is said before anything is."""

from __future__ import annotations

from typing import Any

import pytest

from marin.errors import NotInstalled
from marin.plugins.scale import compiled

Marin = Any


@pytest.mark.parametrize("found", ["0.0.1", None])
def test_a_compiler_that_is_not_here_is_named(found: str | None, monkeypatch: pytest.MonkeyPatch, marin: Marin) -> None:
    def version(name: str) -> str:
        if found is None:
            raise compiled.importlib.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(compiled.importlib.metadata, "version", version)
    with pytest.raises(NotInstalled, match=r"0\.0\.48\.1"):
        compiled.check_libtpu()
    said = marin("compile", "model=nano", "profile=tpu", "--topology", "v5e:2x4")
    assert said.status != 0 and "libtpu" in said.err and "Traceback" not in said.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("model=nano", "profile=tpu", "--topology", "v5e:9x9"), "no such slice"),
        (("model=nano", "profile=portable-cpu", "--topology", "v5e:2x4"), "tpu or exact"),
        (("model=nano", "profile=exact", "--topology", "v5e:2x4", "--against", "v5e:2x2"), "tpu with --against"),
        (("model=nano", "profile=exact", "trainer.batch_size=12", "--topology", "v5e:2x4"), "does not divide"),
        (("model=moe-nano", "profile=exact", "--topology", "v5e:2x4", "--stock"), "mixtral by adamw"),
        (("model=nano", "profile=exact", "optimizer=muon", "--topology", "v5e:2x4", "--stock"), "llama by muon"),
        (("model=nano", "profile=tpu", "--topology", "v5e:2x4", "--against", "v5p:2x2x1"), "slices of two kinds"),
        (("model=nan", "profile=tpu", "--topology", "v5e:2x4"), "nano"),
        (("model=nano", "arithmetic.logical_shards=8", "--topology", "v5e:4x4"), "divide over the chips: --topology"),
        (("model=nano", "arithmetic.logical_shards=8", "--topology", "v5e:2x2", "--against", "v5e:4x4"), "--against"),
        (("model=nano", "arithmetic.logical_shards=x", "--topology", "v5e:2x4"), "arithmetic.logical_shards"),
        (("model=nano", "arithmetic.microbatch_size=1.5", "--topology", "v5e:2x4"), "arithmetic.microbatch_size"),
        (("model=nano", f"arithmetic.microbatch_size={'9' * 5000}", "--topology", "v5e:2x4"), "microbatch_size"),
        (
            ("model=nano", "arithmetic.microbatch_size=0", "--topology", "v5e:2x4"),
            "microbatch_size: expected an integer",
        ),
        (("model=nano", "--topology", "v5p:8x16x16"), "logical_shards (1024), found 2048 in v5p:8x16x16"),
        (("model=nano", "arithmetic.device_kind=TPU v5", "--topology", "v5e:2x4"), "device kind TPU v5, found"),
    ],
)
def test_what_cannot_be_compiled_is_said(marin: Marin, arguments: tuple[str, ...], said: str) -> None:
    answer = marin("compile", *arguments)
    assert answer.status == 2 and said in answer.err
