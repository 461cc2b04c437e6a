"""Pages whose ``console`` blocks tests execute: every command, in order, in one folder, and what it prints beside what the page
says, line by line, digests and losses included; only what differs between two readers is masked.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

PROGRESS = re.compile(
    r"^(\[\d+/\d+\] .*|\w+: run \w+, attempt \d+; .*|train steps \d+ to \d+ recorded|recorded as event \d+|made the root .*"
    r"|note: .*|[a-z].* \((a first time here|.*the last time here|.* so far)\))$"
)
"""What the page shows of stderr."""
COMMAND = re.compile(r"^marin (.*?)(?: ([|>]) (.*))?$")
"""A command of ours, and the shell's rest of it."""
MASKS = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d[.\d]*)?Z", "TIME"),
    (r"\d{4}-\d\d-\d\d", "DATE"),
    (r"\b\d\d-\d\d \d\d:\d\d\b", "TIME"),
    (r"^(log|key|vkey|plan|code)( +).*(marin\.local|sha256|[0-9a-f]{40}).*$", r"\1 OWN"),
    (r"log marin\.local/\w+", "log OWN"),
    (r"(under root|, root|leaf|expected|found|\"id\": \")( *)[0-9a-f]{12,64}", r"\1 DIGEST"),
    (r"\"index\": \d+", "INDEX"),
    (r"\b(events?|entry|size|number) \d+( to \d+)?", r"\1 N"),
    (r"\b\d+ (events|entries|artifacts)\b", r"N \1"),
    (r"^(events) +\d+ to \d+$", r"\1 N"),
    (r"000\.p/\d+", "000.p/N"),
    (r"\b\d+\.\d s\b", "T s"),
    (r" +", " "),  # a column is as wide as what was masked in it
)


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """Language and text of each fenced block."""
    for match in re.finditer(r"^```(\w+)\n(.*?)^```$", page, re.M | re.S):
        yield match[1], match[2]


def commands(block: str) -> list[tuple[str, list[str]]]:
    """Each command of a console block, and the lines that it prints."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def masked(lines: list[str], ids: dict[str, str]) -> list[str]:
    """What two readers have in common; progress is left out."""
    kept = []
    for line in lines:
        if PROGRESS.match(line):
            continue
        for real, name in ids.items():
            line = line.replace(real, name)
        for pattern, word in MASKS:
            line = re.sub(pattern, word, line)
        kept.append(line.rstrip())
    return kept


def executed(lines: list[str]) -> set[str]:
    """The steps that progress names, without their identities: whether one was a hit is not compared."""
    return {match[1] for line in lines if (match := re.match(r"\[\d+/\d+\] (\S+)-[0-9a-f]{10} ", line))}


def run_ids(lines: list[str]) -> list[str]:
    """The runs that a summary names (`run   3f9cabcd  (completed)`)."""
    return [match[1] for line in lines if (match := re.match(r"run +(\w{8})  \(completed\)$", line))]


def called(project: Any, command: str) -> tuple[list[str], list[str]]:
    """What a command of the page prints to stdout and to stderr, in the project's folder."""
    ours = COMMAND.match(command)
    if ours is None:
        shell, given, progress = command, "", ""
    else:
        done = project.marin(*shlex.split(ours[1]))
        shell, given, progress = f"cat {ours[2]} {ours[3]}" if ours[2] else "cat", done.stdout, done.stderr
    done = subprocess.run(
        ["bash", "-c", shell], cwd=project.folder, input=given, capture_output=True, text=True, timeout=600
    )
    return done.stdout.splitlines(), [*progress.splitlines(), *done.stderr.splitlines()]


def played(project: Any, page: str) -> tuple[str, list[tuple[str, list[str], list[str]]]]:
    """The page as it came out in the project's folder, and each command whose output is another: what the page says, what
    was seen."""
    theirs: list[str] = []  # run ids as the page has them, in their order, and as they came out here
    ours: list[str] = []
    happened, different = page, []
    for language, block in blocks(page):
        if language != "console":
            continue
        played = []
        for command, expected in commands(block):
            call = command
            for there, here in zip(theirs, ours, strict=True):
                call = call.replace(there, here)
            found, progress = called(project, call)
            for known, lines in ((theirs, expected), (ours, found)):
                known.extend(run for run in run_ids(lines) if run not in known)
            assert len(theirs) == len(ours), (command, found, progress)
            played += [f"$ {command}", *progress, *found]
            said = masked(expected, {run: f"RUN{n}" for n, run in enumerate(theirs)})
            seen = masked(found, {run: f"RUN{n}" for n, run in enumerate(ours)})
            if said != seen or executed(expected) != executed(progress):
                different.append((command, said, seen))
        happened = happened.replace(block, "".join(f"{line}\n" for line in played))
    return happened, different
