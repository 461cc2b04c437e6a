"""The lexicon: every stem of :mod:`marin.plugins.grammar.words` with its inflected forms, ready to be drawn.

Some three thousand word forms. A noun knows its sort (what may be said of it) and, where it has one, its gender.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from marin.plugins.grammar import words
from marin.plugins.grammar.generator import Weighted, ranked
from marin.plugins.grammar.morphology import adverb, comparison, gerund, participle, past, plural, third_person


class Sort(StrEnum):
    """What a noun stands for; verbs and adjectives choose by it."""

    PERSON = "person"
    ANIMAL = "animal"
    THING = "thing"
    FOOD = "food"
    PLACE = "place"
    FIXTURE = "fixture"
    IDEA = "idea"


class Gender(StrEnum):
    """Gender of a referent, as English pronouns show it. COMMON: he or she, the noun does not say."""

    FEMININE = "feminine"
    MASCULINE = "masculine"
    COMMON = "common"
    NEUTER = "neuter"


@dataclass(frozen=True, slots=True)
class Pronouns:
    """The forms of one personal pronoun."""

    subject: str
    object: str
    possessive: str
    reflexive: str


PRONOUNS = {
    Gender.FEMININE: Pronouns("she", "her", "her", "herself"),
    Gender.MASCULINE: Pronouns("he", "him", "his", "himself"),
    Gender.NEUTER: Pronouns("it", "it", "its", "itself"),
}
THEY = Pronouns("they", "them", "their", "themselves")


@dataclass(frozen=True, slots=True)
class Noun:
    """A countable noun with both numbers."""

    singular: str
    plural: str
    sort: Sort
    gender: Gender

    def form(self, many: bool) -> str:
        """The plural for many, else the singular."""
        return self.plural if many else self.singular


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb with its five forms."""

    base: str
    third: str
    past: str
    participle: str
    gerund: str

    @property
    def stative(self) -> bool:
        """Whether it names a state, which has no progressive form: *knows*, not *is knowing*."""
        return self.base in words.STATIVE


def _nouns(stems: tuple[str, ...], sort: Sort, gender: Gender = Gender.NEUTER) -> Weighted[Noun]:
    return ranked([Noun(stem, plural(stem), sort, gender) for stem in stems])


def verb(base: str) -> Verb:
    """All forms of the verb ``base``."""
    return Verb(base, third_person(base), past(base), participle(base), gerund(base))


BE, HAVE, DO = verb("be"), verb("have"), verb("do")

ROLES = _nouns(words.ROLES, Sort.PERSON, Gender.COMMON)
WOMEN_NOUNS = _nouns(words.FEMALE, Sort.PERSON, Gender.FEMININE)
MEN_NOUNS = _nouns(words.MALE, Sort.PERSON, Gender.MASCULINE)
GROUPS = _nouns(words.GROUPS, Sort.PERSON, Gender.COMMON)
NOUNS: dict[Sort, Weighted[Noun]] = {
    Sort.ANIMAL: _nouns(words.ANIMALS, Sort.ANIMAL),
    Sort.THING: _nouns(words.THINGS, Sort.THING),
    Sort.FOOD: _nouns(words.FOODS, Sort.FOOD),
    Sort.PLACE: _nouns(words.PLACES_IN + words.PLACES_AT + words.PLACES_ON, Sort.PLACE),
    Sort.FIXTURE: _nouns(words.FIXTURES, Sort.FIXTURE),
    Sort.IDEA: _nouns(words.IDEAS, Sort.IDEA),
}
NAMES = {Gender.FEMININE: ranked(words.WOMEN), Gender.MASCULINE: ranked(words.MEN)}
PERSON_KINDS = Weighted([ROLES, WOMEN_NOUNS, MEN_NOUNS, GROUPS], [50, 18, 18, 14])

PREPOSITION = (
    dict.fromkeys(words.PLACES_IN, "in") | dict.fromkeys(words.PLACES_AT, "at") | dict.fromkeys(words.PLACES_ON, "on")
)

VERBS = {
    base: verb(base)
    for group in (
        words.INTRANSITIVE,
        words.MOTION,
        words.TAKES_THING,
        words.TAKES_FOOD,
        words.TAKES_PERSON,
        words.TAKES_ANIMAL,
        words.TAKES_PLACE,
        words.TAKES_FIXTURE,
        words.TAKES_IDEA,
        words.REFLEXIVE,
        words.GIVING,
        words.THINKING,
        words.WISHING,
        words.SPEAKING,
        words.THING_HAPPENS,
        words.ANIMAL_DOES,
    )
    for base in group
}


def _verbs(bases: tuple[str, ...]) -> Weighted[Verb]:
    return ranked([VERBS[base] for base in bases])


INTRANSITIVE = _verbs(words.INTRANSITIVE)
MOTION = _verbs(words.MOTION)
TAKES = {
    Sort.THING: _verbs(words.TAKES_THING),
    Sort.FOOD: _verbs(words.TAKES_FOOD),
    Sort.PERSON: _verbs(words.TAKES_PERSON),
    Sort.ANIMAL: _verbs(words.TAKES_ANIMAL),
    Sort.PLACE: _verbs(words.TAKES_PLACE),
    Sort.FIXTURE: _verbs(words.TAKES_FIXTURE),
    Sort.IDEA: _verbs(words.TAKES_IDEA),
}
REFLEXIVE = _verbs(words.REFLEXIVE)
GIVING = _verbs(words.GIVING)
THINKING = _verbs(words.THINKING)
WISHING = _verbs(words.WISHING)
SPEAKING = _verbs(words.SPEAKING)
THING_HAPPENS = _verbs(words.THING_HAPPENS)
ANIMAL_DOES = _verbs(words.ANIMAL_DOES)

ADJECTIVES: dict[Sort, Weighted[str]] = {
    Sort.PERSON: ranked(words.OF_PEOPLE),
    Sort.ANIMAL: ranked(words.OF_ANIMALS),
    Sort.THING: ranked(words.OF_THINGS),
    Sort.FOOD: ranked(words.OF_FOODS),
    Sort.PLACE: ranked(words.OF_PLACES),
    Sort.FIXTURE: ranked(words.OF_THINGS),
    Sort.IDEA: ranked(words.OF_IDEAS),
}
COMPARED = {
    sort: Weighted(kept, [1] * len(kept))
    for sort, table in ADJECTIVES.items()
    if (kept := [adjective for adjective in table.items if adjective in words.COMPARED])
}
COMPARISON = {adjective: comparison(adjective) for adjective in words.COMPARED}
ADVERBS = ranked([adverb(adjective) for adjective in words.MANNERS])
NUMBERS = ranked(words.NUMBERS)
