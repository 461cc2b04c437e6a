"""Minimal pairs: one critical word, never equal, new to anyone who has read the stories."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from marin.plugins import grammar
from marin.plugins.grammar import MinimalPair, lexicon

COUNT = 17 * 60


@pytest.fixture(scope="module")
def pairs() -> list[MinimalPair]:
    return grammar.minimal_pairs(0, COUNT)


def difference(pair: MinimalPair) -> tuple[list[str], list[str]]:
    good, bad = pair.good.split(), pair.bad.split()
    assert len(good) == len(bad)
    where = [i for i, (a, b) in enumerate(zip(good, bad, strict=True)) if a != b]
    return [good[i] for i in where], [bad[i] for i in where]


def test_the_two_sentences_differ_in_one_word(pairs: list[MinimalPair]) -> None:
    assert {tuple(map(len, difference(pair))) for pair in pairs} == {(1, 1)}


def test_no_pair_is_there_twice(pairs: list[MinimalPair]) -> None:
    assert len({pair.good for pair in pairs}) == COUNT
    assert len({(pair.uid, pair.pair_id) for pair in pairs}) == COUNT


def test_phenomena_are_equally_frequent(pairs: list[MinimalPair]) -> None:
    assert Counter(pair.uid for pair in pairs) == dict.fromkeys(grammar.PHENOMENA, 60)


def test_deterministic_and_stable_under_count(pairs: list[MinimalPair]) -> None:
    assert grammar.minimal_pairs(0, 100) == pairs[:100]
    assert grammar.minimal_pairs(1, 100) != pairs[:100]
    assert grammar.minimal_pairs(0, 0) == []


def test_fields_are_those_of_blimp(pairs: list[MinimalPair]) -> None:
    for pair in pairs[:34]:
        record = json.loads(json.dumps(pair.as_json()))
        assert set(record) == {"sentence_good", "sentence_bad", "field", "linguistics_term", "UID", "pairID"}
        assert all(isinstance(value, str) and value for value in record.values())


def test_good_sentences_are_held_out(pairs: list[MinimalPair]) -> None:
    read = " ".join(grammar.documents(0, "train", 500_000))
    seen = [pair for pair in pairs if pair.good in read]
    assert len(seen) < COUNT // 50  # some, such as "Anna hurt herself.", are too short to avoid
    assert [pair for pair in pairs if len(pair.good.split()) > 5 and pair.bad in read] == []


def test_attractors_have_the_other_number(pairs: list[MinimalPair]) -> None:
    nouns = {noun.singular: False for table in (lexicon.ROLES, lexicon.GROUPS) for noun in table.items}
    nouns |= {noun.plural: True for table in (lexicon.ROLES, lexicon.GROUPS) for noun in table.items}
    checked = 0
    for pair in pairs:
        if pair.uid == "agreement_across_relative_clause":
            match = re.match(r"The (\w+) that the (\w+) ", pair.good)
            assert match
            head, attractor = match.groups()
            if head in nouns and attractor in nouns:
                assert nouns[head] != nouns[attractor]
                checked += 1
    assert checked > 20


def test_genders_are_right_by_name(pairs: list[MinimalPair]) -> None:
    for pair in pairs:
        subject = pair.good.split()[0]
        if pair.uid == "reflexive_gender_agreement" and subject in lexicon.NAMES[lexicon.Gender.FEMININE].items:
            assert difference(pair) == (["herself."], ["himself."])
        if pair.uid == "reflexive_gender_agreement" and subject in lexicon.NAMES[lexicon.Gender.MASCULINE].items:
            assert difference(pair) == (["himself."], ["herself."])


def test_articles_are_right_by_sound(pairs: list[MinimalPair]) -> None:
    for pair in (pair for pair in pairs if pair.uid == "indefinite_article"):
        (good,), _ = difference(pair)
        following = pair.good.split()[pair.good.split().index(good) + 1]
        if following not in ("honest", "useless"):
            assert (good == "an") == (following[0] in "aeiou")


def test_irregular_forms_are_used_with_and_without_auxiliary(pairs: list[MinimalPair]) -> None:
    for pair in pairs:
        good, bad = difference(pair)
        if pair.uid == "irregular_past":
            assert " had " not in pair.good
            assert any((verb.past, verb.participle) == (good[0], bad[0]) for verb in lexicon.VERBS.values())
        if pair.uid == "irregular_past_participle":
            assert f" had {good[0]} " in pair.good
