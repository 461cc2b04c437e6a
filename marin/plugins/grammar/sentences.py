"""Kinds of sentences beyond subject and predicate: coordination, subordination, questions, passives, *there is*.

Every function draws one sentence from :class:`Phrases` and returns it without capital and full stop;
:func:`finished` adds both.
"""

from __future__ import annotations

from collections.abc import Callable

from marin.plugins.grammar import lexicon, words
from marin.plugins.grammar.generator import Weighted
from marin.plugins.grammar.lexicon import Sort
from marin.plugins.grammar.morphology import article
from marin.plugins.grammar.phrases import Phrases


def finished(text: str, mark: str = ".") -> str:
    """A written sentence: first letter capital, closed by ``mark`` unless a quotation has closed it."""
    closed = text if text.endswith(('."', '?"')) else text + mark
    first = 1 if closed[0] == '"' else 0
    return closed[:first] + closed[first].upper() + closed[first + 1 :]


def plain(phrases: Phrases) -> str:
    """The baker finds the key."""
    return phrases.clause()


def at_a_time(phrases: Phrases) -> str:
    """In the morning, the baker finds the key."""
    return f"{phrases.generator.pick(words.TIMES)}, {phrases.clause()}"


def coordinated(phrases: Phrases) -> str:
    """The baker sings, and the sailors dance."""
    return f"{phrases.clause(0)}, {phrases.generator.pick(('and', 'but', 'so', 'and', 'but'))} {phrases.clause(0)}"


def subordinated(phrases: Phrases) -> str:
    """When the bell rings, the sailors wake."""
    generator = phrases.generator
    word = generator.pick(("when", "while", "because", "before", "after", "although", "if", "until"))
    if generator.chance(50):
        return f"{word} {phrases.clause(0)}, {phrases.clause(0)}"
    return f"{phrases.clause(0)} {word} {phrases.clause(0)}"


def described(phrases: Phrases) -> str:
    """The keys on the table are heavy."""
    sort = phrases.generator.pick((Sort.PERSON, Sort.PERSON, Sort.THING, Sort.ANIMAL, Sort.PLACE, Sort.FOOD))
    subject = phrases.noun_phrase(sort)
    adjective = phrases.generator.draw(lexicon.ADJECTIVES[sort])
    degree = phrases.generator.pick(("", "", "very ", "not ", "never "))
    return f"{subject.text} {phrases.be(subject.many)} {degree}{adjective}"


def compared(phrases: Phrases) -> str:
    """The bakers are older than the queen."""
    sort = phrases.generator.pick((Sort.PERSON, Sort.PERSON, Sort.THING, Sort.ANIMAL, Sort.PLACE))
    subject, other = phrases.noun_phrase(sort), phrases.noun_phrase(sort, depth=0)
    comparative = lexicon.COMPARISON[phrases.generator.draw(lexicon.COMPARED[sort])][0]
    return f"{subject.text} {phrases.be(subject.many)} {comparative} than {other.text}"


def identified(phrases: Phrases) -> str:
    """The woman near the door is a teacher."""
    subject = phrases.noun_phrase(Sort.PERSON)
    noun = phrases.generator.draw(lexicon.ROLES)
    head = phrases.modified(noun, subject.many)
    return f"{subject.text} {phrases.be(subject.many)} {head if subject.many else f'{article(head)} {head}'}"


def existing(phrases: Phrases) -> str:
    """There are three lanterns under the bench."""
    generator = phrases.generator
    noun = phrases.noun(generator.pick((Sort.THING, Sort.FOOD, Sort.ANIMAL, Sort.PERSON)))
    many = generator.chance(50)
    head = phrases.modified(noun, many)
    if generator.chance(15):
        return f"there {phrases.be(many)} no {head} {phrases.place()}"
    quantity = generator.pick(("some", "many", "several", "two", "three")) if many else article(head)
    return f"there {phrases.be(many)} {quantity} {head} {phrases.place()}"


def denied(phrases: Phrases) -> str:
    """No sailor has ever seen the queen. Nobody finds any keys."""
    generator = phrases.generator
    if generator.chance(40):
        subject, many = generator.pick(("nobody", "no one")), False
    else:
        many = generator.chance(50)
        subject = f"no {phrases.modified(phrases.noun(Sort.PERSON), many)}"
    sort = generator.pick((Sort.THING, Sort.PERSON, Sort.ANIMAL, Sort.PLACE))
    verb = generator.draw(lexicon.TAKES[sort])
    if generator.chance(60):
        have = phrases.finite(verb, many, aspect="perfect").split(" ", 1)
        return f"{subject} {have[0]} ever {have[1]} {phrases.noun_phrase(sort, depth=0).text}"
    return f"{subject} {phrases.finite(verb, many)} {phrases.polarity_item(sort)}"


def passive(phrases: Phrases) -> str:
    """The letters were found by the baker."""
    sort = phrases.generator.pick((Sort.THING, Sort.THING, Sort.FOOD, Sort.PERSON, Sort.ANIMAL))
    subject = phrases.noun_phrase(sort)
    agent = phrases.noun_phrase(Sort.PERSON, depth=0)
    verb = phrases.generator.draw(lexicon.TAKES[sort])
    return f"{subject.text} {phrases.be(subject.many)} {verb.participle} by {agent.text}"


def asked(phrases: Phrases) -> str:
    """ "Do the sailors know the queen?" asks Clara."""
    generator = phrases.generator
    now = phrases.quoting()
    subject = now.noun_phrase(Sort.PERSON, depth=0)
    sort = generator.pick((Sort.PERSON, Sort.THING, Sort.PLACE))
    verb = generator.draw(lexicon.TAKES[sort])
    item = now.polarity_item(sort) if generator.chance(25) else now.noun_phrase(sort, depth=0).text
    question = f'"{"do" if subject.many else "does"} {subject.text} {verb.base} {item}?"'
    return f"{question} {phrases.finite(lexicon.VERBS['ask'], False)} {_speaker(phrases)}"


def spoken(phrases: Phrases) -> str:
    """ "The keys are on the table," says Clara."""
    generator = phrases.generator
    opened = finished(generator.pick((plain, described, existing, denied))(phrases.quoting()), ",")
    verb = phrases.finite(generator.draw(lexicon.SPEAKING), False)
    return f'"{opened}" {verb} {_speaker(phrases)}'


def _speaker(phrases: Phrases) -> str:
    if phrases.cast and phrases.generator.chance(70):
        return phrases.generator.pick(phrases.cast).name
    return f"the {phrases.noun(Sort.PERSON).singular}"


SENTENCES: Weighted[Callable[[Phrases], str]] = Weighted(
    [
        plain,
        at_a_time,
        coordinated,
        subordinated,
        described,
        compared,
        identified,
        existing,
        denied,
        passive,
        asked,
        spoken,
    ],
    [44, 6, 6, 8, 10, 4, 3, 6, 5, 4, 2, 3],
)


def sentence(phrases: Phrases) -> str:
    """One sentence of any kind, written out."""
    return finished(phrases.generator.draw(SENTENCES)(phrases))
