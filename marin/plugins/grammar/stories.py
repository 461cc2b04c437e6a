"""Stories: a cast, a plot, and sentences of the free grammar between the sentences of the plot.

A character keeps name, gender and work through a story. A pronoun replaces a name only where one reading is possible:
its referent was the subject of the sentence before, and nobody else of that gender was mentioned since.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from marin.plugins.grammar import lexicon
from marin.plugins.grammar.generator import Generator
from marin.plugins.grammar.lexicon import BE, DO, HAVE, PRONOUNS, VERBS, Gender, Noun, Sort, Verb, verb
from marin.plugins.grammar.morphology import article
from marin.plugins.grammar.phrases import Person, Phrases, Tense
from marin.plugins.grammar.plots import OPENINGS, PLOTS, TIES
from marin.plugins.grammar.sentences import finished, sentence

_SLOT = re.compile(r"\{(\^?)([A-Z])(?:\.([a-z]+))?\}|\[([a-z]+)(?::([a-z]+))?\]")


@dataclass(frozen=True, slots=True)
class _Cast:
    """Who and what a story is about; ``worker`` is a person known by work and of fixed gender."""

    protagonist: Person
    friend: Person
    worker: Person
    group: Noun
    animal: Noun
    thing: Noun
    thing_adjective: str
    near: Noun
    far: Noun
    tie: str
    traits: tuple[str, str, str]


def _cast(generator: Generator) -> _Cast:
    protagonist, friend = _named(generator), _named(generator)
    while friend.name == protagonist.name:
        friend = _named(generator)
    role = generator.draw(lexicon.ROLES)
    while role in (protagonist.role, friend.role):
        role = generator.draw(lexicon.ROLES)
    worker = Person(f"the {role.singular}", generator.pick((Gender.FEMININE, Gender.MASCULINE)), role)
    things = lexicon.NOUNS[Sort.THING]
    places = lexicon.NOUNS[Sort.PLACE]
    near, far = generator.draw(places), generator.draw(places)
    while far is near:
        far = generator.draw(places)
    group = generator.draw(generator.pick((lexicon.ROLES, lexicon.GROUPS)))
    return _Cast(
        protagonist,
        friend,
        worker,
        group,
        generator.draw(lexicon.NOUNS[Sort.ANIMAL]),
        generator.draw(things),
        generator.draw(lexicon.ADJECTIVES[Sort.THING]),
        near,
        far,
        generator.pick(TIES),
        (_trait(generator), _trait(generator), _trait(generator)),
    )


def _palette(generator: Generator, cast: _Cast) -> dict[Sort, tuple[Noun, ...]]:
    """Nouns that this story keeps coming back to: its own, and a few drawn for it."""
    own = {Sort.THING: (cast.thing,), Sort.ANIMAL: (cast.animal,), Sort.PLACE: (cast.near, cast.far)}
    palette = {
        sort: own.get(sort, ()) + tuple(generator.draw(table) for _ in range(2))
        for sort, table in lexicon.NOUNS.items()
    }
    people = tuple(generator.draw(generator.draw(lexicon.PERSON_KINDS)) for _ in range(3))
    return palette | {Sort.PERSON: (*people, cast.group)}


def _named(generator: Generator) -> Person:
    gender = generator.pick((Gender.FEMININE, Gender.MASCULINE))
    name = generator.draw(lexicon.NAMES[gender])
    return Person(name, gender, generator.draw(lexicon.ROLES))


def _trait(generator: Generator) -> str:
    return generator.draw(lexicon.ADJECTIVES[Sort.PERSON])


class Story:
    """One story in the making: what has been said, and who a pronoun would be taken for."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self._tense = Tense.PRESENT if generator.chance(45) else Tense.PAST
        self._cast = _cast(generator)
        self._phrases = Phrases(
            generator, self._tense, (self._cast.protagonist, self._cast.friend), _palette(generator, self._cast)
        )
        self._topic: Person | None = None
        self._mentioned: list[Person] = []
        self._before: list[Person] = []
        self._many = False
        self._subject: Person | None = None

    def text(self) -> str:
        """The whole story, paragraphs separated by an empty line."""
        plot = self._generator.pick(PLOTS)
        parts = (OPENINGS, plot.problem, plot.attempt, plot.ending)
        paragraphs = [self._paragraph(part) for part in parts]
        if self._generator.chance(40):
            paragraphs.insert(1 + self._generator.below(3), " ".join(self._free() for _ in range(4)))
        return "\n\n".join(paragraphs)

    def _paragraph(self, part: tuple[tuple[str, ...], ...]) -> str:
        self._topic, self._mentioned = None, []
        sentences: list[str] = []
        for alternatives in part:
            template = self._generator.pick(alternatives)
            if template.startswith("~"):
                if self._generator.chance(40):
                    continue
                template = template[1:]
            sentences.append(self._sentence(template))
            sentences.extend(self._free() for _ in range(self._generator.pick((0, 1, 1, 1, 2))))
        return " ".join(sentences)

    def _free(self) -> str:
        """A sentence of the grammar at large: after it nobody is the topic."""
        self._topic, self._mentioned = None, []
        return sentence(self._phrases)

    def _sentence(self, template: str) -> str:
        self._before, self._mentioned = self._mentioned, []
        self._subject, self._many = None, False
        text = _SLOT.sub(self._slot, template)
        self._topic = self._subject
        return finished(text)

    def _slot(self, match: re.Match[str]) -> str:
        marked, letter, form, base, shape = match.groups()
        if base is not None:
            return self._verb(base, shape)
        match letter:
            case "P":
                return self._person(self._cast.protagonist, form, bool(marked), self._cast.traits[0])
            case "F":
                return self._person(self._cast.friend, form, bool(marked), self._cast.traits[1])
            case "R":
                return self._person(self._cast.worker, form, bool(marked), self._cast.traits[2])
            case "B":
                return self._both(form, bool(marked))
            case "C":
                return self._group(form, bool(marked))
            case "A":
                return self._creature(self._cast.animal, form, bool(marked), "")
            case "O":
                return self._creature(self._cast.thing, form, bool(marked), self._cast.thing_adjective)
            case _:
                return self._place(self._cast.near if letter == "H" else self._cast.far, form)

    def _verb(self, base: str, shape: str | None) -> str:
        many = {"one": False, "many": True}.get(shape or "", self._many)
        if base == "can":
            word = "can" if self._tense is Tense.PRESENT else "could"
            return self._phrases.modal(word, " not" if shape == "not" else "")
        found = _verb(base)
        aspect = shape if shape in ("perfect", "progressive") else "simple"
        return self._phrases.finite(found, many, aspect=aspect, negated=shape == "not", never=shape == "never")

    def _person(self, person: Person, form: str | None, subject: bool, trait: str) -> str:
        if subject:
            self._many = False
            self._subject = person
        clear = self._topic is person and not any(
            other.gender is person.gender and other is not person for other in self._before + self._mentioned
        )
        self._mentioned.append(person)
        pronouns = PRONOUNS[person.gender]
        match form:
            case "role":
                return person.role.singular
            case "adj":
                return f"{article(trait)} {trait}"
            case "trait":
                return f"{self._generator.pick(('very ', 'always ', ''))}{trait}"
            case "a":
                return f"{article(person.role.singular)} {person.role.singular}"
            case "he":
                return pronouns.subject
            case "him":
                return person.name if self._rival(person) else pronouns.object
            case "his":
                return f"{person.name}'s" if self._rival(person) else pronouns.possessive
            case "self":
                return pronouns.reflexive
            case "tie":
                return self._cast.tie
            case "name":
                return person.name
            case _:
                return pronouns.subject if clear and subject and self._generator.chance(80) else person.name

    def _rival(self, person: Person) -> bool:
        """Whether a pronoun for ``person`` could be taken for somebody else of this sentence. A subject wins."""
        return self._subject is not person and any(
            other is not person and other.gender is person.gender for other in self._mentioned
        )

    def _both(self, form: str | None, subject: bool) -> str:
        first, second = self._cast.protagonist, self._cast.friend
        if subject:
            self._many = True
            self._subject = None
        match form:
            case "they" | "them" | "their":
                return form
            case _:
                known = first in self._before and second in self._before
                self._mentioned += [first, second]
                return "they" if subject and known and self._generator.chance(70) else f"{first.name} and {second.name}"

    def _group(self, form: str | None, subject: bool) -> str:
        if subject:
            self._many = True
            self._subject = None
        return form if form in ("they", "them", "their") else f"the {self._cast.group.plural}"

    def _creature(self, noun: Noun, form: str | None, subject: bool, adjective: str) -> str:
        if subject:
            self._many = form == "plural"
            self._subject = None
        head = f"{adjective} {noun.singular}".strip()
        match form:
            case "it":
                return "it"
            case "self":
                return "itself"
            case "a":
                return f"{article(head)} {head}"
            case "plural":
                return noun.plural
            case _:
                return f"the {noun.singular}"

    def _place(self, noun: Noun, form: str | None) -> str:
        return f"the {noun.singular}" if form == "the" else f"{lexicon.PREPOSITION[noun.singular]} the {noun.singular}"


_MORE_VERBS = {item.base: item for item in (BE, HAVE, DO)}


def _verb(base: str) -> Verb:
    found = VERBS.get(base) or _MORE_VERBS.get(base)
    if found is None:
        found = _MORE_VERBS[base] = verb(base)
    return found


def story(generator: Generator) -> str:
    """One story drawn from ``generator``."""
    return Story(generator).text()
