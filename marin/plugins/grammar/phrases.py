"""Noun phrases and verb phrases: where agreement, government and selection are decided.

A phrase is built together with what others must agree with, its number and its gender; nothing is inflected afterwards
by looking at the words. ``depth`` bounds embedding: a phrase at depth 0 holds no relative clause of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from marin.plugins.grammar import lexicon
from marin.plugins.grammar.generator import Generator, Weighted
from marin.plugins.grammar.lexicon import BE, HAVE, PRONOUNS, THEY, Gender, Noun, Pronouns, Sort, Verb
from marin.plugins.grammar.morphology import article


class Tense(StrEnum):
    """The tense in which a passage is told."""

    PRESENT = "present"
    PAST = "past"


@dataclass(frozen=True, slots=True)
class Person:
    """A named character."""

    name: str
    gender: Gender
    role: Noun


@dataclass(frozen=True, slots=True)
class NounPhrase:
    """Words with what agrees with them: ``many`` for the verb, ``gender`` and ``many`` for pronouns."""

    text: str
    many: bool
    gender: Gender
    sort: Sort

    @property
    def pronouns(self) -> Pronouns | None:
        """The pronouns that refer to this; None for one person whose gender is unknown."""
        return THEY if self.many else PRONOUNS.get(self.gender)


_SINGULAR = Weighted(["the", "a", "this", "that", "every", "each", "another", "'s"], [44, 26, 6, 6, 6, 2, 3, 7])
_PLURAL = Weighted(
    ["the", "these", "those", "some", "many", "several", "a few", "all the", "most", "both", "#"],
    [42, 7, 7, 9, 7, 5, 4, 4, 3, 2, 10],
)
_ASPECT = Weighted(["simple", "progressive", "perfect", "modal"], [66, 12, 12, 10])
_MODALS = {
    Tense.PRESENT: Weighted(["can", "will", "must", "should", "may"], [40, 26, 16, 12, 6]),
    Tense.PAST: Weighted(["could", "would", "must", "should", "might"], [40, 30, 8, 12, 10]),
}
_SUBJECTS = Weighted([Sort.PERSON, Sort.ANIMAL, Sort.THING, Sort.FIXTURE], [64, 18, 12, 6])
_PERSON_DOES = Weighted(["rest", "move", "take", "think", "wish", "give", "self", "talk"], [14, 14, 46, 7, 8, 6, 3, 2])
_OBJECTS = Weighted(
    [Sort.THING, Sort.PERSON, Sort.FOOD, Sort.ANIMAL, Sort.PLACE, Sort.FIXTURE, Sort.IDEA], [30, 28, 10, 10, 9, 5, 8]
)
_GOAL = Weighted(["to", "through", "towards", "past", "from", "around", "into"], [42, 12, 10, 8, 12, 8, 8])
_STANDS = Weighted(["on", "under", "near", "behind", "beside", "in front of"], [30, 20, 20, 12, 12, 6])


class Phrases:
    """Draws phrases for one passage: its tense, the characters that its readers know by name, and a ``palette`` of
    nouns that it keeps coming back to."""

    def __init__(
        self,
        generator: Generator,
        tense: Tense,
        cast: tuple[Person, ...] = (),
        palette: Mapping[Sort, tuple[Noun, ...]] | None = None,
    ) -> None:
        self.generator = generator
        self.tense = tense
        self.cast = cast
        self.palette = palette or {}

    def quoting(self) -> Phrases:
        """What somebody says in this passage: present tense, no character speaking of themselves by name."""
        return Phrases(self.generator, Tense.PRESENT, (), self.palette)

    # Verbs

    def finite(
        self, verb: Verb, many: bool, *, aspect: str = "simple", negated: bool = False, never: bool = False
    ) -> str:
        """The finite verb group: *walks*, *did not walk*, *has never walked*, *were walking*, *can walk*."""
        present = self.tense is Tense.PRESENT
        adverb = " never" if never else ""
        negation = " not" if negated else adverb
        match aspect:
            case "progressive":
                return f"{self.be(many)}{negation} {verb.gerund}"
            case "perfect":
                auxiliary = ("have" if many else HAVE.third) if present else HAVE.past
                return f"{auxiliary}{negation} {verb.participle}"
            case "modal":
                return f"{self.modal(self.generator.draw(_MODALS[self.tense]), negation)} {verb.base}"
            case _ if verb is BE:
                return f"{self.be(many)}{negation}"
            case _ if negated:
                auxiliary = ("do" if many else "does") if present else "did"
                return f"{auxiliary} not {verb.base}"
            case _:
                form = (verb.base if many else verb.third) if present else verb.past
                return f"never {form}" if never else form

    @staticmethod
    def modal(word: str, negation: str) -> str:
        """A modal with what follows it; *can not* is written as one word."""
        return "cannot" if word == "can" and negation == " not" else word + negation

    def be(self, many: bool) -> str:
        """*is*, *are*, *was* or *were*."""
        if self.tense is Tense.PRESENT:
            return "are" if many else BE.third
        return "were" if many else BE.past

    def verb(self, verb: Verb, many: bool) -> str:
        """A finite verb group with drawn aspect and polarity."""
        aspect = self.generator.draw(_ASPECT)
        if aspect == "progressive" and verb.stative:
            aspect = "simple"
        polarity = self.generator.below(100)
        never = 9 <= polarity < 12 and aspect != "progressive"
        return self.finite(verb, many, aspect=aspect, negated=polarity < 9, never=never)

    # Noun phrases

    def noun(self, sort: Sort) -> Noun:
        """A noun of ``sort``: every other time one that this passage is about."""
        if sort in self.palette and self.generator.chance(50):
            return self.generator.pick(self.palette[sort])
        if sort is Sort.PERSON:
            return self.generator.draw(self.generator.draw(lexicon.PERSON_KINDS))
        return self.generator.draw(lexicon.NOUNS[sort])

    def noun_phrase(self, sort: Sort, *, depth: int = 1, many: bool | None = None, names: bool = True) -> NounPhrase:
        """A full noun phrase of ``sort``; for persons sometimes a known character's name."""
        generator = self.generator
        if sort is Sort.PERSON and names and self.cast and many is not True and generator.chance(30):
            return name(generator.pick(self.cast))
        noun = self.noun(sort)
        plural = generator.chance(38 if sort is not Sort.PLACE else 12) if many is None else many
        head = self.modified(noun, plural)
        text = f"{self.determined(head, plural)}{self.after(noun, plural, depth)}"
        return NounPhrase(text, plural, noun.gender, sort)

    def modified(self, noun: Noun, many: bool) -> str:
        """The noun with up to two adjectives before it."""
        form = noun.form(many)
        count = self.generator.below(20)
        if count >= 8:
            return form
        first = self.generator.draw(lexicon.ADJECTIVES[noun.sort])
        if count >= 1:
            return f"{first} {form}"
        second = self.generator.draw(lexicon.ADJECTIVES[noun.sort])
        return f"{first} {second} {form}" if first != second else f"very {first} {form}"

    def determined(self, head: str, many: bool) -> str:
        """A determiner that agrees with the head in number, then the head."""
        generator = self.generator
        if many:
            determiner = generator.draw(_PLURAL)
            return f"{generator.draw(lexicon.NUMBERS) if determiner == '#' else determiner} {head}"
        determiner = generator.draw(_SINGULAR)
        if determiner == "a":
            return f"{article(head)} {head}"
        if determiner == "'s":
            return f"{generator.pick(self.cast).name}'s {head}" if self.cast else f"the {head}"
        return f"{determiner} {head}"

    def after(self, noun: Noun, many: bool, depth: int) -> str:
        """What follows the head: nothing, a prepositional phrase, or a relative clause."""
        if depth <= 0:
            return ""
        kind = self.generator.below(100)
        if kind < 14:
            return " " + self.relative_clause(noun.sort, many)
        if kind < 24:
            return " " + self.prepositional_phrase(noun.sort)
        return ""

    def relative_clause(self, sort: Sort, many: bool) -> str:
        """*who the sailors know*, *that runs to the mill*, *where Clara works*."""
        generator = self.generator
        if sort is Sort.PLACE:
            subject = self.noun_phrase(Sort.PERSON, depth=0)
            return f"where {subject.text} {self.verb(generator.draw(lexicon.INTRANSITIVE), subject.many)}"
        relative = "who" if sort is Sort.PERSON and generator.chance(70) else "that"
        if sort in (Sort.PERSON, Sort.ANIMAL) and generator.chance(50):
            return f"{relative} {self.predicate(sort, many, Gender.COMMON, depth=0)}"
        subject = self.noun_phrase(Sort.PERSON, depth=0)
        verb = generator.draw(lexicon.TAKES[sort])
        return f"{relative} {subject.text} {self.verb(verb, subject.many)}"

    def prepositional_phrase(self, sort: Sort) -> str:
        """*near the window*, *from the village*, *with the red hat*: a second noun beside the head."""
        generator = self.generator
        if sort is Sort.PERSON and generator.chance(60):
            if generator.chance(50):
                return f"with {self.noun_phrase(Sort.THING, depth=0).text}"
            return f"from {self.noun_phrase(Sort.PLACE, depth=0, many=False).text}"
        if sort is Sort.IDEA:
            return f"about {self.noun_phrase(generator.pick((Sort.PERSON, Sort.ANIMAL, Sort.THING)), depth=0).text}"
        return f"{generator.draw(_STANDS)} {self.noun_phrase(Sort.FIXTURE, depth=0).text}"

    def place(self, *, depth: int = 0) -> str:
        """*in the garden*, *at the old station*, *on the bridge*."""
        noun = self.noun(Sort.PLACE)
        head = self.modified(noun, False)
        determined = f"the {head}" if self.generator.chance(75) else f"{article(head)} {head}"
        return f"{lexicon.PREPOSITION[noun.singular]} {determined}{self.after(noun, False, depth)}"

    # Predicates

    def predicate(self, sort: Sort, many: bool, gender: Gender, *, depth: int = 1) -> str:
        """A verb phrase that a subject of this sort, number and gender can have."""
        match sort:
            case Sort.PERSON:
                return self._person_does(many, gender, depth)
            case Sort.ANIMAL:
                return self._animal_does(many, depth)
            case _:
                verb = self.verb(self.generator.draw(lexicon.THING_HAPPENS), many)
                return (
                    f"{verb} {self.generator.pick(('again', 'suddenly', 'slowly', 'at last'))}"
                    if self.generator.chance(30)
                    else verb
                )

    def _person_does(self, many: bool, gender: Gender, depth: int) -> str:
        generator = self.generator
        match generator.draw(_PERSON_DOES):
            case "rest":
                text = self.verb(generator.draw(lexicon.INTRANSITIVE), many)
                kind = generator.below(100)
                if kind < 35:
                    return f"{text} {self.place()}"
                return f"{text} {generator.draw(lexicon.ADVERBS)}" if kind < 60 else text
            case "move":
                where = self.noun_phrase(Sort.PLACE, depth=depth - 1, many=False).text
                return f"{self.verb(generator.draw(lexicon.MOTION), many)} {generator.draw(_GOAL)} {where}"
            case "think" if depth > 0:
                return f"{self.verb(generator.draw(lexicon.THINKING), many)} that {self.clause(depth - 1)}"
            case "wish":
                return f"{self.verb(generator.draw(lexicon.WISHING), many)} to {self.bare_predicate()}"
            case "give":
                receiver = self.noun_phrase(Sort.PERSON, depth=0).text
                gift = self.noun_phrase(generator.pick((Sort.THING, Sort.FOOD)), depth=depth - 1).text
                verb = self.verb(generator.draw(lexicon.GIVING), many)
                return f"{verb} {gift} to {receiver}"
            case "self":
                pronouns = THEY if many else PRONOUNS.get(gender)
                if pronouns is not None:
                    return f"{self.verb(generator.draw(lexicon.REFLEXIVE), many)} {pronouns.reflexive}"
            case "talk":
                person = self.noun_phrase(Sort.PERSON, depth=0).text
                topic = self.noun_phrase(Sort.IDEA, depth=depth - 1).text
                return f"{self.verb(lexicon.VERBS['tell'], many)} {person} {topic}"
            case _:
                pass
        return self._takes(many, gender, depth)

    def _takes(self, many: bool, gender: Gender, depth: int) -> str:
        """A transitive verb with its object; under *not* and *never* the object may be a polarity item."""
        generator = self.generator
        sort = generator.draw(_OBJECTS)
        verb = self.verb(generator.draw(lexicon.TAKES[sort]), many)
        negative = "not " in verb or "never " in verb
        if negative and generator.chance(55):
            return f"{verb} {self.polarity_item(sort)}"
        owner = THEY if many else PRONOUNS.get(gender)
        if owner is not None and sort in (Sort.THING, Sort.FOOD, Sort.ANIMAL) and generator.chance(25):
            head = self.modified(self.noun(sort), generator.chance(30))
            return f"{verb} {owner.possessive} {head}"
        text = f"{verb} {self.noun_phrase(sort, depth=depth - 1).text}"
        kind = generator.below(100)
        if kind < 10:
            return f"{text} {self.place()}"
        return f"{text} {generator.draw(lexicon.ADVERBS)}" if kind < 16 else text

    def polarity_item(self, sort: Sort) -> str:
        """An object that only stands under negation: *any keys*, *anybody*, *anything*."""
        if self.generator.chance(35):
            return "anybody" if sort is Sort.PERSON else "anything"
        return f"any {self.modified(self.noun(sort), True)}"

    def _animal_does(self, many: bool, depth: int) -> str:
        generator = self.generator
        kind = generator.below(100)
        if kind < 50:
            text = self.verb(generator.draw(lexicon.ANIMAL_DOES), many)
            return f"{text} {self.place()}" if generator.chance(45) else text
        if kind < 75:
            sort = generator.pick((Sort.ANIMAL, Sort.PERSON))
            verb = self.verb(lexicon.VERBS[generator.pick(("follow", "watch", "chase", "see", "hear"))], many)
            return f"{verb} {self.noun_phrase(sort, depth=depth - 1).text}"
        verb = self.verb(lexicon.VERBS[generator.pick(("eat", "steal", "like", "chew"))], many)
        return f"{verb} {self.noun_phrase(Sort.FOOD, depth=depth - 1).text}"

    def bare_predicate(self) -> str:
        """A predicate with a bare infinitive, after *to*."""
        generator = self.generator
        kind = generator.below(100)
        if kind < 25:
            return f"{generator.draw(lexicon.INTRANSITIVE).base} {self.place()}"
        if kind < 50:
            return f"{generator.draw(lexicon.MOTION).base} to {self.noun_phrase(Sort.PLACE, depth=0, many=False).text}"
        sort = generator.draw(_OBJECTS)
        return f"{generator.draw(lexicon.TAKES[sort]).base} {self.noun_phrase(sort, depth=0).text}"

    def clause(self, depth: int = 1) -> str:
        """A subject and a predicate that agrees with it."""
        subject = self.noun_phrase(self.generator.draw(_SUBJECTS), depth=depth)
        return f"{subject.text} {self.predicate(subject.sort, subject.many, subject.gender, depth=depth)}"


def name(person: Person) -> NounPhrase:
    """A character by name."""
    return NounPhrase(person.name, False, person.gender, Sort.PERSON)
