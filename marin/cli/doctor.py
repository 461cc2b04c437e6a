"""`marin doctor`: what this machine can reproduce, and what stands in the way."""

from __future__ import annotations

from pathlib import Path

import click

from marin.cli.output import print_json, say
from marin.process.waiting import waiting
from marin.provenance.code import code_folder
from marin.record.root import root_location
from marin.verify.diagnosis import PROFILES, Health, diagnose

MARKS = {Health.OK: ("ok  ", "green"), Health.NOTE: ("note", "yellow"), Health.BAD: ("NO  ", "red")}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the description of the environment.")
def doctor(as_json: bool) -> None:
    """Say what this machine can reproduce, and why not.

    Looks at the processor, the system, Python, the installed versions against requirements.lock, settings that
    contradict the arithmetic contract, the root, its key and the free space, and executes the known answers of exact
    arithmetic and, once for each processor and set of versions, of whole train steps under portable-cpu. Ends with the
    profiles whose bits this machine gives, whatever its architecture. Changes nothing. Exit status 3 when something
    stands in the way of the default profile's bits (portable-cpu).

    \b
    Examples:
      marin doctor
      marin doctor --json
    """
    with waiting("looking at this machine, and executing the known answers of exact arithmetic"):
        diagnosis = diagnose(project=code_folder(), working=Path.cwd(), root=root_location())
    if as_json:
        print_json(diagnosis.describe())
    else:
        for check in diagnosis.checks:
            say(f"  {check.name:<10} {check.found}", mark=MARKS[check.health])
            if check.cure:
                say(f"      {'':<10} {check.cure}")
        say()
        for profile in PROFILES:
            verdict = "yes" if not diagnosis.reasons(profile) else "no; what is marked says why"
            say(f"Same bits on this machine ({profile}): {verdict}")
    if not diagnosis.able:
        click.get_current_context().exit(3)
