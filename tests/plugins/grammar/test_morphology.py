"""Inflection against forms looked up in a dictionary."""

from __future__ import annotations

import pytest

from marin.plugins.grammar import morphology

PLURALS = """
    baker/bakers box/boxes church/churches bush/bushes compass/compasses cherry/cherries key/keys donkey/donkeys
    child/children man/men woman/women mouse/mice goose/geese sheep/sheep wolf/wolves knife/knives loaf/loaves
    potato/potatoes roof/roofs cliff/cliffs dwarf/dwarfs thief/thieves hero/heroes ox/oxen fisherman/fishermen
"""
VERBS = """
    walk/walks/walked/walked/walking carry/carries/carried/carried/carrying stop/stops/stopped/stopped/stopping
    open/opens/opened/opened/opening obey/obeys/obeyed/obeyed/obeying watch/watches/watched/watched/watching
    take/takes/took/taken/taking write/writes/wrote/written/writing swim/swims/swam/swum/swimming go/goes/went/gone/going
    lie/lies/lay/lain/lying see/sees/saw/seen/seeing begin/begins/began/begun/beginning visit/visits/visited/visited/visiting
    travel/travels/travelled/travelled/travelling cut/cuts/cut/cut/cutting hug/hugs/hugged/hugged/hugging
    wrap/wraps/wrapped/wrapped/wrapping chew/chews/chewed/chewed/chewing peel/peels/peeled/peeled/peeling
    answer/answers/answered/answered/answering forget/forgets/forgot/forgotten/forgetting have/has/had/had/having
    be/is/was/been/being hurry/hurries/hurried/hurried/hurrying eat/eats/ate/eaten/eating fly/flies/flew/flown/flying
"""
COMPARISONS = """
    old/older/oldest big/bigger/biggest happy/happier/happiest brave/braver/bravest narrow/narrower/narrowest
    gentle/gentler/gentlest good/better/best bad/worse/worst grey/greyer/greyest sad/sadder/saddest
"""


@pytest.mark.parametrize("entry", PLURALS.split())
def test_plurals(entry: str) -> None:
    singular, plural = entry.split("/")
    assert morphology.plural(singular) == plural


@pytest.mark.parametrize("entry", VERBS.split())
def test_verbs(entry: str) -> None:
    base, third, past, participle, gerund = entry.split("/")
    assert morphology.third_person(base) == third
    assert morphology.past(base) == past
    assert morphology.participle(base) == participle
    assert morphology.gerund(base) == gerund


@pytest.mark.parametrize("entry", COMPARISONS.split())
def test_comparison(entry: str) -> None:
    adjective, comparative, superlative = entry.split("/")
    assert morphology.comparison(adjective) == (comparative, superlative)


@pytest.mark.parametrize("adjective", ["patient", "careful", "expensive", "famous", "curious", "fragile", "honest"])
def test_long_adjectives_are_compared_with_more(adjective: str) -> None:
    assert morphology.comparison(adjective) == (f"more {adjective}", f"most {adjective}")


@pytest.mark.parametrize(
    ("adjective", "adverb"),
    [
        ("quick", "quickly"),
        ("happy", "happily"),
        ("gentle", "gently"),
        ("wise", "wisely"),
        ("tragic", "tragically"),
        ("full", "fully"),
        ("pale", "palely"),
    ],
)
def test_adverbs(adjective: str, adverb: str) -> None:
    assert morphology.adverb(adjective) == adverb


@pytest.mark.parametrize(
    ("word", "article"),
    [
        ("apple", "an"),
        ("baker", "a"),
        ("hour", "an"),
        ("honest", "an"),
        ("uniform", "a"),
        ("umbrella", "an"),
        ("useless", "a"),
        ("ugly", "an"),
        ("old", "an"),
        ("one-eyed", "a"),
        ("hat", "a"),
        ("European", "a"),
        ("usual", "a"),
    ],
)
def test_articles_follow_the_sound(word: str, article: str) -> None:
    assert morphology.article(word.lower()) == article
