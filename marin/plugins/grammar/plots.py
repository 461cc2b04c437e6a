"""Plots: the frames of the stories, written as templates over a small cast.

A template is a sentence with slots. ``{P}`` is the protagonist, ``{F}`` the friend, ``{R}`` a third person known by
work only, ``{C}`` a group, ``{A}`` an animal, ``{O}`` the object that the story turns on, ``{H}`` and ``{X}`` a near
and a far place. A slot may name a form after a point:

    {P}  name, or pronoun where only one reading is possible      {P.name}  always the name
    {P.he} {P.him} {P.his} {P.self}  pronouns by gender           {P.role}  bare noun for the work
    {O.a} {R.a} {A.a}  first mention                              {O.it}    pronoun
    {H} {X}  with preposition: "at the mill"                      {H.the}   "the mill"

``^`` in front marks the subject that the verbs after it agree with: ``{^C} [watch] {P.him}``. A verb in brackets is
inflected for tense and agreement; ``[find:perfect]``, ``:progressive``, ``:not`` and ``:never`` choose a form, ``:one``
and ``:many`` a number. ``~`` at
the start lets a sentence be left out. Nothing is evaluated: :mod:`marin.plugins.grammar.stories` replaces known slots by
words.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plot:
    """Three paragraphs after the opening, each a list of sentences with alternatives."""

    name: str
    problem: tuple[tuple[str, ...], ...]
    attempt: tuple[tuple[str, ...], ...]
    ending: tuple[tuple[str, ...], ...]


OPENINGS: tuple[tuple[str, ...], ...] = (
    (
        "{^P.name} [be] {P.adj} {P.role} who [live] {H}",
        "{^P.name} [live] {H} and [work] as {P.a}",
        "there [be:one] {P.adj} {P.role} {H} whose name [be:one] {P.name}",
    ),
    (
        "~everybody who [know:one] {P.him} [say:one] that {P.he} [be:one] {P.trait}",
        "~{^C} [like] {P.him} because {P.he} [be:one] {P.trait}",
        "~{^P.he} [be] {P.trait}, and {^C} [know] it",
    ),
    ("{P.his} {F.tie} {^F.name} [be] {F.adj} {F.role}", "{^F.name}, {P.his} {F.tie}, [be] {F.adj} {F.role}"),
    (
        "~{^B} often [meet] {X} and [talk] about {C}",
        "~{^B} [see] each other every day",
        "~{^F.name} [have] {A.a} that [follow] {F.him} everywhere",
        "~{^B} [know:perfect] each other since {B.their} childhood",
    ),
)

PLOTS: tuple[Plot, ...] = (
    Plot(
        "lost",
        (
            (
                "one morning {^P.name} [can:not] find {O}",
                "one day {^P.name} [lose] {O}",
                "one evening {O} [be:one] gone",
            ),
            ("{^P} [need] {O.it} very much", "{^P} [love] {O.it} more than gold", "{^O.it} [belong] to {P.his} family"),
            ("{^P} [look] {H} and {X}, but {^O.it} [be] not there", "{^P} [search] {H.the}, but {P.he} [find] nothing"),
            (
                "~{^P} [begin] to cry",
                "~{^P} [ask] {C}, but nobody [know:one] anything",
                "~{^C} [help] {P.him}, but {C.they} [find] nothing",
            ),
        ),
        (
            ("then {^P.name} [go] to {F.name} and [tell] {F.him} everything", "so {^P.name} [ask] {F.name} for help"),
            (
                "{^F.name} [think] for a while",
                "~{^F.name} [listen] and [say] nothing",
                "~{^F} [smile] and [take] {P.his} hand",
            ),
            ('"you are sad because of {O.a}," [say:one] {F.name}', '"who has seen {O}?" [ask:one] {F.name}'),
            (
                "together {^B} [walk] to {X.the}",
                "{^B} [hurry] to {X.the} and [open] every box",
                "{^B} [go] from door to door",
            ),
            ("~{^A} [run] in front of them", "~{^C} who [see] them [wave]", "~{^R.a} who [work] {X} [help] them"),
        ),
        (
            ("at last {^B} [find] {O} {X}", "suddenly {^F.name} [see] {O} {X}", "in the end {^A} [find] {O} {X}"),
            (
                "{^R.a} [have] taken {O.it} by mistake",
                "{^O.it} [be] under {A}",
                "somebody [have:one] hidden {O.it} there",
            ),
            ("{^P.name} [thank] {F.name}", "{^P.name} [hug] {F.name} and [laugh]", "{^P.name} [be] happy again"),
            ("from that day {^P} never [lose] {O.it} again", "now {^P} [keep] {O.it} {H}", "{^P} [show] {O.it} to {C}"),
        ),
    ),
    Plot(
        "journey",
        (
            (
                "one day {^P.name} [get] a letter from {R.a} {X}",
                "one morning {^R.a} from {X.the} [send] {P.name} {O.a}",
            ),
            ("{^R} [want] {P.him} to come to {X.the}", "{^R} [need] {P.him} there and [can:not] wait"),
            ("{^P} [pack] {O} and [say] goodbye to {C}", "{^P} [take] {O} and [leave] {H.the}"),
            ("~{^F.name} [decide] to go with {P.him}", "~{^F.name} [do] not want to stay alone", "~{^A} [come] too"),
        ),
        (
            (
                "{^B} [travel] for three days",
                "the road [be:one] long, and {^B} [be] tired",
                "{^B} [walk] through the forest",
            ),
            ("{^P.name} [carry] {O}, and {^F.name} [carry] the food", "~{^F.name} [tell] {P.name} a story about {C}"),
            (
                "at night {^B} [sleep] under a tree",
                "in the evening {^C} [give] them bread",
                "~{^B} [see] {A.a} near the river",
            ),
            ("~it [rain:one], but {^B} [do] not stop", "~{^F.name} [hurt] {F.self}, and {^P.name} [help] {F.him}"),
        ),
        (
            ("at last {^B} [reach] {X.the}", "on the third day {^B} [see] {X.the}"),
            ("{^R} [welcome] them and [open] the door", "{^R} who [wait:perfect] so long [run] to meet them"),
            (
                "{^P.name} [give] {O} to {R.him}",
                "{^P.name} [show] {R.him} {O}",
                '"{O} is yours now," [say:one] {P.name}',
            ),
            ("{^B} [stay] there until the winter", "{^B} never [forget] that journey", "the next day {^B} [go] home"),
        ),
    ),
    Plot(
        "quarrel",
        (
            ("one day {^B} [quarrel] about {O.a}", "one evening {^P.name} and {F.name} [begin:many] to shout"),
            ("{^P.name} [say] that {O} [be:one] {P.his}", "{^F.name} [claim] that {P.name} [break:perfect] {O}"),
            ("{^F.name} [do] not believe {P.him}", "{^F.name} [get] angry and [leave] {H.the}"),
            (
                "~{^C} [hear] them, and {C.they} [be:many] surprised",
                "~nobody [understand:one] why {B.they} [shout:many]",
            ),
        ),
        (
            ("for a week {^B} [do] not speak", "for many days {^B} [avoid] each other"),
            ("{^P.name} [blame] {P.self}", "{^F.name} [blame] {F.self}", "~{^P.name} [can:not] sleep"),
            ("{^R.a} who [know] them both [visit] {P.name}", "{^R.a} [see] that {B.they} [be:many] sad"),
            ('"{F.name} misses you," [say:one] {R}', '"friends are better than {O.plural}," [say:one] {R}'),
        ),
        (
            ("so {^P.name} [go] to {F.name} with {A.a}", "so {^P.name} [write] a letter to {F.name}"),
            ("{^P} [forgive] {F.him}, and {^F.name} [forgive] {P.him}", "{^F.name} [open] the door and [smile]"),
            ("{^B} [share] {O} from that day", "{^B} [sell] {O} and [buy] bread for {C}"),
            ("~{^C} [be] glad", "~nobody ever [hear:one] them shout again", "~{^B} never [quarrel] again"),
        ),
    ),
    Plot(
        "gift",
        (
            (
                "{^F.name} [have] a birthday, and {^P.name} [want] to give {F.him} {O.a}",
                "{^P.name} [plan] a surprise for {F.name}",
            ),
            ("{^P} [have] no money", "but {^O.plural} [be] expensive", "but {^P} [do] not know where to find one"),
            ("{^R.a} {X} [sell] {O.plural}", "{^R.a} {X} [have] many {O.plural}"),
            ("~{^P} [count] {P.his} coins and [sigh]", "~{^C} [have] no money either"),
        ),
        (
            ("so {^P.name} [go] to {X.the} and [ask] {R} for work", "so {^P.name} [work] for {R} {X}"),
            (
                "{^P} [clean] the floor and [feed] {A}",
                "{^P} [carry] boxes and [wash] plates",
                "{^P} [repair] {R.his} tools",
            ),
            ("{^R} [see] that {P.he} [be:one] {P.trait}", "{^R} [be] pleased with {P.him}"),
            ('"take {O}," [say:one] {R}', "after a week {^R} [give] {P.him} {O.a}"),
        ),
        (
            ("{^P.name} [wrap] {O} and [bring] it to {F.name}", "{^P.name} [hide] {O} behind {P.his} back and [laugh]"),
            (
                "{^F.name} [can:not] believe {F.his} eyes",
                "{^F.name} [open] the parcel and [weep]",
                "{^F.name} [kiss] {P.him}",
            ),
            ("~{^C} [sing] a song for {F.him}", "~{^A} [steal] a piece of the cake"),
            (
                "{^F} [keep] {O} for many years",
                "{^F} still [have] {O}",
                "{^F.name} [say] that nobody [have:one] ever given {F.him} {O.a}",
            ),
        ),
    ),
    Plot(
        "animal",
        (
            ("one night {^P.name} [hear] {A.a} {H}", "one morning {^P.name} [find] {A.a} behind {O.a}"),
            ("{^A} [be] hungry and cold", "{^A} [have] hurt {A.self}", "{^A} [tremble] and [can:not] move"),
            ("{^P} [give] {A.it} bread and water", "{^P} [wrap] {A.it} in {P.his} coat"),
            ("~{^F.name} [bring] a blanket", "~{^F.name} [be] afraid of {A.it} and [stand] behind {O}"),
        ),
        (
            ("every day {^P.name} [feed] {A}", "{^A} [grow] strong and [follow] {P.name} everywhere"),
            ("{^A} [sleep] beside {O} and [watch] the door", "{^A} [eat] the apples of {C}", "{^A} [play] with {O}"),
            ("{^C} [do] not like {A.it}", "{^R.a} [come] and [say] that {A.it} [be:one] {R.his}"),
            ('"give {A.it} to me," [say:one] {R.a}', "~{^P.name} and {F.name} [hide:many] {A.it} {X}"),
        ),
        (
            ("but {^A} [know] better and [stay] with {P.name}", "in the end {^P.name} [take] {A.it} to {X.the}"),
            (
                "there {^A} [find] its mother",
                "there {^A} [live] with many others",
                "{^F.name} [build] {A.it} a small house",
            ),
            ("{^P.name} [visit] {A.it} every week", "sometimes {^P.name} [hear] it at night and [smile]"),
            ("~{^C} [tell] the story to {C.their} children", "~{^F.name} [paint] a picture of {A.it}"),
        ),
    ),
    Plot(
        "work",
        (
            ("every morning {^P.name} [go] to {X.the}", "{^P.name} [wake] before dawn and [open] the door {X}"),
            ("there {^P} [meet] {R.a} and {C}", "{^R.a} [wait] for {P.him} there"),
            ("{^P} [use] {O.a} that [be:one] very old", "{^P} always [carry] {O.a}"),
            ("~{^C} [buy] bread from {P.him}", "~{^C} [watch] {P.him} and [ask] questions"),
        ),
        (
            ("one day {O} [break:one]", "one day {^R} [drop] {O}", "one day {^A} [steal] {O}"),
            ("nobody [can:one] repair {O.it}", "without {O.it} {^P} [can:not] work", "{^R} [be] angry and [shout]"),
            ("{^F.name} [hear] about it and [come] at once", "{^P.name} [send] {A} to {F.name}"),
            ("~{^F} [examine] {O} carefully", "~{^F.name} [work] all night", "~{^C} [bring] candles and food"),
        ),
        (
            ("in the morning {O} [be:one] better than before", "before dawn {^B} [finish] the work"),
            (
                "{^R} [praise] {F.name}, who [blush:one]",
                "{^P.name} [pay] {F.him} with a cake",
                "{^F.name} [want] no money",
            ),
            ("~{^C} [dance] {H}", "~{^B} [eat] pancakes with {C}"),
            (
                "now {^F.name} [work] {X} too",
                "since then {^B} [share] the work",
                "{^P.name} [teach] {F.him} everything",
            ),
        ),
    ),
)

TIES = ("friend", "neighbour", "cousin", "partner", "pupil")
