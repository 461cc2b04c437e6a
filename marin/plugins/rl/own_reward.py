"""A reward of one's own: a function of a user's Python file that only computes, called as TRL's trainers call theirs.

The recipe has the file's path, the function's name and the file's digest, and the file lies in the store for anyone to read.
It is never executed from there: who trains or replays has the file where the recipe says, below the working folder.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import get_ident
from types import CodeType
from typing import Any

from ledger import digest_bytes
from marin.errors import DataError, MissingEvidence, UsageError
from marin.recipe.objective import OwnReward
from marin.work.computing import MODULES, Code, Reach, when_loaded

USED = {name: names - {"random"} for name, names in MODULES.items() if name != "random"}
"""What a reward may take from which module: what always gives the same."""
MOST_LINES = 1_000_000
"""Lines of Python that run for one reward."""
TOOL = 4
"""Of the numbers by which tools watch this interpreter, one that is not a known tool's."""
Function = Callable[..., object]


class _TooLong(BaseException):
    """No ``except Exception`` of the function ends it."""


def read_reward(written: str) -> tuple[OwnReward, bytes]:
    """``FILE.py:NAME`` as a recipe has it, and the file's bytes.

    Raises:
        UsageError: there is no such function, or it does more than compute.
    """
    file, _, name = written.rpartition(":")
    path = Path(file)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    if not file or not name.isidentifier() or path.is_absolute() or ".." in path.parts:
        raise reward_error(
            f"--reward {written}", "FILE.py:NAME, a function of a file below the working folder", written
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise reward_error(str(path), "a file that can be read", error.strerror or str(error)) from None
    found = OwnReward(file=path.as_posix(), function=name, digest=digest_bytes(content))
    function_of(found)
    return found, content


def function_of(reward: OwnReward) -> Function:
    """The function, of the file on this machine.

    Raises:
        MissingEvidence: there is no such file below the working folder, or it is another one.
        UsageError: the file has no such function, or it does more than compute.
    """
    path = Path(reward.file)
    try:
        found = digest_bytes(path.read_bytes())
    except OSError:
        found = "none"
    if path.is_absolute() or ".." in path.parts or found != reward.digest:
        raise MissingEvidence(
            "the function that rewards completions is not here",
            where=f"objective.reward: {reward.function} of {ascii(reward.file)[1:-1]}",
            expected=f"a file with {reward.digest}, below the working folder",
            found=found,
            cure=f"marin store get {reward.digest} FILE, read it, and put it there: code of a ledger is never executed from it",
        )
    return _function(str(path.resolve()), reward.function, reward.digest)


@cache
def _function(path: str, name: str, digest: str) -> Function:
    file = Path(path)

    def module(relative: str) -> Any:
        return _module(str(file.parent / relative), digest)

    where = f"{file.name}:{name}"
    reach = Reach(Code(file.parent, USED, when_loaded(USED), module, reward_error), where)
    reach.name(file.name, name)
    found = getattr(module(file.name), name)
    if not callable(found):
        raise reward_error(where, "a function", type(found).__name__)
    return found


@cache
def _module(path: str, digest: str) -> Any:
    spec = spec_from_file_location(f"reward_{digest.removeprefix('sha256:')[:16]}", path)
    assert spec is not None and spec.loader is not None, "a file that was read"
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise reward_error(path, "a file that can be loaded", f"{type(error).__name__}: {error}"[:200]) from None
    return module


def call_reward(
    function: Function,
    prompt: object,
    completion: str,
    tokens: Sequence[int],
    columns: Mapping[str, object],
    where: str,
) -> float:
    """What the function gives for one completion. It is called as by TRL, with lists of one: ``prompts``, ``completions``,
    ``completion_ids`` and each column; of a conversation the completion is the assistant's message.

    Raises:
        DataError: it raises, does not end, or gives something else than one number.
    """
    said: object = completion if isinstance(prompt, str) else [{"role": "assistant", "content": completion}]
    given = {name: [value] for name, value in columns.items()}
    try:
        found = _bounded(
            function, {"prompts": [prompt], "completions": [said], "completion_ids": [list(tokens)], **given}
        )
    except _TooLong:
        raise _no_number(where, f"an end after at most {MOST_LINES} lines of Python", "none") from None
    except Exception as error:
        raise _no_number(where, "a number", f"{type(error).__name__}: {error}"[:200]) from None
    value = found[0] if isinstance(found, list | tuple) and len(found) == 1 else None
    if isinstance(value, bool | int | float):
        return float(value)
    raise _no_number(where, "a list of one number", repr(found)[:80])


def _bounded(function: Function, given: Mapping[str, object]) -> object:
    """What the function gives. From the line after the last that it may run, each raises, those of its own handlers too, so
    nothing that it does keeps it going. A turn of a loop that stands in one line counts as a line."""
    watch, thread = sys.monitoring, get_ident()
    left = {watch.events.LINE: MOST_LINES, watch.events.JUMP: MOST_LINES}

    def passed(event: int, code: CodeType, place: int, target: int = 0) -> None:
        if code is not _bounded.__code__ and get_ident() == thread and target <= place:
            left[event] -= 1
            if left[event] < 0:
                raise _TooLong

    watch.use_tool_id(TOOL, __name__)
    for event in left:
        watch.register_callback(TOOL, event, partial(passed, event))
    watch.set_events(TOOL, sum(left))
    try:
        return function(**given)
    finally:
        watch.set_events(TOOL, watch.events.NO_EVENTS)
        watch.free_tool_id(TOOL)


def reward_error(where: str, expected: str, found: str) -> UsageError:
    """What is said of a function that is not taken."""
    return UsageError(
        "a reward that cannot be taken",
        where=where,
        expected=expected,
        found=found,
        cure="docs/rl.md has what a reward of your own may do",
    )


def _no_number(where: str, expected: str, found: str) -> DataError:
    return DataError(
        "a reward that is not a number",
        where=where,
        expected=expected,
        found=found,
        cure="correct the function; nothing of this update was recorded",
    )
