"""What the bound ``most_compared`` leaves out: little, where documents share a form, and it is said first."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from marin.cli import main
from marin.plugins.collections.build import BuildRequest, build
from marin.plugins.collections.comparing.near import Choice, components, shingles, signatures
from marin.plugins.collections.page import page
from marin.plugins.collections.queries.account import account
from marin.plugins.collections.queries.documents import Collection, find
from marin.plugins.collections.settings import CollectionSettings, Near
from tests.plugins.collections.making import root_of

FORM, OWN = 130, 50


def documents(count: int) -> Iterator[str]:
    """Texts that have most of a form in common, so that all of them share bands; every fourth has a twin."""
    draw = random.Random(2)
    lexicon = [f"w{number}" for number in range(5000)]
    form = draw.choices(lexicon, k=FORM)
    for number in range(count):
        text = [*form, *draw.choices(lexicon, k=draw.randint(OWN, 2 * OWN))]
        yield " ".join(text)
        if number % 4 == 0:
            text[draw.randrange(len(text))] = "other"
            yield " ".join(text)


def chosen(texts: list[str], near: Near, definition: int) -> tuple[dict[int, int], Choice]:
    """Removed documents with the kept ones by which they go, all of them in one component."""
    keys, _ = signatures(texts, near)
    numbers = np.arange(len(texts))
    assert (components(([(numbers, keys[:, band])] for band in range(near.bands)), len(texts)) == 0).all()
    choice = Choice(near, definition)
    return {one.removed: one.kept for one in choice.choose(zip(texts, keys.tolist(), strict=True))}, choice


def test_of_too_many_candidates_those_are_compared_that_share_the_most_bands() -> None:
    texts = sorted(documents(240), key=len, reverse=True)
    near = Near(rows=2)
    kept: list[int] = []
    by_sets: dict[int, int] = {}
    sets = [shingles(text, near.shingle) for text in texts]
    for place, mine in enumerate(sets):
        twin = next((one for one in kept if 5 * len(mine & sets[one]) >= 4 * len(mine | sets[one])), None)
        if twin is None:
            kept.append(place)
        else:
            by_sets[place] = twin
    assert len(by_sets) == 60
    whole, choice = chosen(texts, near, 2)
    assert (whole, choice.left) == (by_sets, 0)
    low = Near(rows=2, most_compared=8)
    before, choice = chosen(texts, low, 1)
    assert len(before) < 20 and choice.left > 200
    now, choice = chosen(texts, low, 2)
    assert len(now) >= 57 and now.items() <= by_sets.items()
    assert choice.left == len(choice.bounded) and all(one.compared == 8 < one.candidates for one in choice.bounded)
    assert not {one.place for one in choice.bounded} & now.keys()


@pytest.mark.parametrize("most", [2, 256])
def test_what_the_bound_left_out_is_said_first(
    project: Path, most: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents(24)))
    settings = CollectionSettings(near=Near(rows=2, most_compared=most))
    root = root_of(project)
    built = build(root, BuildRequest((f"{project}/a.jsonl",), settings))
    collection = Collection(root.store(), built.artifact)
    found = account(collection)
    assert found.not_compared == built.not_compared == found.as_json()["not_compared_with_all"]
    assert bool(built.not_compared) == (most == 2)
    evidence = [
        decision["evidence"]
        for row in collection.documents(("id",))
        for told in find(collection, row["id"])
        for decision in told.decisions
        if decision["step"] == "near" and "compared" in decision["evidence"]
    ]
    assert len(evidence) == built.not_compared and all(
        one["most_compared"] == 2 < one["candidates"] for one in evidence
    )
    assert (b"not compared with all" in page(found)) == (most == 2)
    monkeypatch.chdir(project)
    (project / "near.yaml").write_text(f"near: {{rows: 2, most_compared: {most}}}\n")

    def said(*arguments: str) -> tuple[str, str]:
        capsys.readouterr()
        assert main.run(["data", *arguments]) == 0
        return capsys.readouterr()

    asked = ("build", "--source", f"{project}/a.jsonl", "--config", "near.yaml")
    assert ("not compared with all" in said(*asked)[1].splitlines()[1]) == (most == 2)
    assert json.loads(said(*asked, "--json")[0])["not_compared_with_all"] == built.not_compared
    assert ("not compared with all" in said("report", built.artifact)[0].splitlines()[1]) == (most == 2)
