"""Which cosignatures make a checkpoint good: a trust policy (C2SP tlog-policy), such as n of these m witnesses.

    log log.example/spec+ad210b1d+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4
    witness alpha witness.example/a+… https://a.witness.example
    witness beta witness.example/b+… https://b.witness.example
    group witnesses 1 alpha beta
    quorum witnesses

A group is met when so many of its members are, and a member is a witness that cosigned or another group. The
URL of a witness is the prefix below which it answers ``add-checkpoint`` (tlog-witness). A mirror (tlog-mirror) is listed as a
witness is, under the key that vouches for its copies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ledger.errors import Malformed, Refused, Unverified
from ledger.format.checkpoint import LogCheckpoint, open_checkpoint
from ledger.format.cosignature import COSIGNATURES
from ledger.format.note import Note, VerifierKey

NONE = "none"
GROUP = "witnesses"
"""The one group of the policies that ``with_witness`` writes."""
_MAX_BYTES = 1 << 20
_SPACE = re.compile(r"[ \t]+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_NAME = re.compile(r"[^ \t\n#]{1,200}\Z")


@dataclass(frozen=True)
class PolicyWitness:
    """A witness under the name that it has in a policy; ``url`` is empty where it need not be asked."""

    name: str
    key: VerifierKey
    url: str = ""


@dataclass(frozen=True)
class PolicyGroup:
    """Met when ``needed`` of the members are."""

    needed: int
    members: tuple[str, ...]


@dataclass(frozen=True)
class WitnessPolicy:
    """What a policy file says. ``str()`` is the file."""

    logs: tuple[VerifierKey, ...] = ()
    witnesses: tuple[PolicyWitness, ...] = ()
    groups: Mapping[str, PolicyGroup] = field(default_factory=dict)
    quorum: str = NONE

    def __str__(self) -> str:
        lines = [f"log {key}" for key in self.logs]
        lines += [f"witness {w.name} {w.key} {w.url}".rstrip() for w in self.witnesses]
        lines += [f"group {name} {g.needed} {' '.join(g.members)}" for name, g in self.groups.items()]
        return "".join(f"{line}\n" for line in [*lines, f"quorum {self.quorum}"])

    @classmethod
    def parse(cls, data: bytes) -> WitnessPolicy:
        """The policy in a file; ``Malformed`` names the line that is not one."""
        text = data[: _MAX_BYTES + 1].decode("utf-8", "surrogateescape")
        if len(data) > _MAX_BYTES or (data and not data.endswith(b"\n")):
            raise _malformed("the file", f"at most {_MAX_BYTES} bytes, ending in a newline", f"{len(data)} bytes")
        reading = _Reading()
        for number, line in enumerate(text.split("\n"), 1):
            if _CONTROL.search(line):
                raise _malformed(f"line {number}", "no control characters", repr(line[:80]))
            stripped = line.strip(" \t")
            if stripped and not stripped.startswith("#"):
                reading.line(_SPACE.split(stripped), f"line {number}")
        return reading.policy()

    def check(self, note: bytes, trusted: Sequence[VerifierKey] = ()) -> tuple[LogCheckpoint, list[str]]:
        """The checkpoint in ``note`` and the names of the witnesses that cosigned it.

        ``Unverified`` unless one of the logs (of the policy, or ``trusted``) signed it and the quorum is met. A cosignature
        of a known key that does not hold refuses the whole note.
        """
        checkpoint, opened = open_checkpoint(note, [*self.logs, *trusted])
        return checkpoint, self.check_quorum(opened)

    def check_quorum(self, note: Note) -> list[str]:
        """The names of the witnesses that cosigned ``note``; ``Unverified`` unless the quorum is met."""
        by_key = {(w.key.name, w.key.key_id): w for w in self.witnesses}
        good: dict[str, None] = {}
        for line in note.signatures:
            witness = by_key.get((line.name, line.key_id))
            if witness is None:
                continue
            if not witness.key.verify(note.text, line.signature):
                raise Unverified("a cosignature does not hold", where=f"{line.name}+{line.key_id:08x}")
            good[witness.name] = None
        if not self._met(self.quorum, set(good)):
            raise Unverified(
                "too few witnesses cosigned",
                expected=self.describe(),
                found=", ".join(good) or "none",
                cure="ask them: `ledger witness ask`",
            )
        return list(good)

    def describe(self) -> str:
        """The quorum for people: ``2 of alpha, beta, gamma``."""
        group = self.groups.get(self.quorum)
        return self.quorum if group is None else f"{group.needed} of {', '.join(group.members)}"

    def with_witness(self, witness: PolicyWitness, needed: int | None = None) -> WitnessPolicy:
        """This policy with one more witness, of all of which ``needed`` must cosign (all, unless said).

        Raises:
            Refused: the policy has groups of its own, or a witness of this name or key; the name or the number cannot be.
        """
        if any(name != GROUP for name in self.groups) or self.quorum not in (NONE, GROUP):
            raise Refused(
                "a policy with groups of its own is not changed by command",
                expected="one group, written by this command",
                found=", ".join(self.groups) or self.quorum,
                cure="edit the policy file",
            )
        if witness.name in (NONE, GROUP) or not _NAME.match(witness.name):
            raise Refused("not a name of a witness", where=repr(witness.name), cure="give it another name")
        kept = [w for w in self.witnesses if w.name != witness.name]
        if any(w.key.public == witness.key.public for w in kept):
            raise Refused("the witness is in the policy already", where=str(witness.key), cure="one key counts once")
        witnesses = (*kept, witness)
        count = len(witnesses) if needed is None else needed
        if not 1 <= count <= len(witnesses):
            raise Refused(
                "not a quorum",
                expected=f"1 to {len(witnesses)} of {len(witnesses)} witnesses",
                found=f"{count}",
                cure="add the other witnesses first",
            )
        group = PolicyGroup(count, tuple(w.name for w in witnesses))
        return WitnessPolicy(self.logs, witnesses, {GROUP: group}, GROUP)

    def _met(self, name: str, cosigned: set[str]) -> bool:
        if name == NONE:
            return True
        group = self.groups.get(name)
        if group is None:
            return name in cosigned
        return sum(self._met(member, cosigned) for member in group.members) >= group.needed


class _Reading:
    """A policy while its lines are read: names must be there before they are used."""

    def __init__(self) -> None:
        self._logs: list[VerifierKey] = []
        self._witnesses: list[PolicyWitness] = []
        self._groups: dict[str, PolicyGroup] = {}
        self._used: set[str] = set()
        self._quorum: str | None = None

    def line(self, words: list[str], where: str) -> None:
        match words:
            case ["log", key] | ["log", key, _]:
                self._logs.append(self._key(key, (k.public for k in self._logs), where))
            case ["witness", name, key, *url] if len(url) <= 1:
                self._fresh(name, where)
                parsed = self._key(key, (w.key.public for w in self._witnesses), where)
                if parsed.algorithm not in COSIGNATURES:
                    expected = "the key of a cosigner (0x04 or 0x06)"
                    raise _malformed(where, expected, f"algorithm {parsed.algorithm:#04x} of {parsed.name}")
                self._witnesses.append(PolicyWitness(name, parsed, *url))
            case ["group", name, count, first, *others]:
                self._fresh(name, where)
                members = (first, *others)
                self._groups[name] = PolicyGroup(self._count(count, len(members), where), members)
                for member in members:
                    self._known(member, where)
                    if member in self._used or member == name:
                        raise _malformed(where, "each name in one group, once", member)
                    self._used.add(member)
            case ["quorum", name] if self._quorum is None:
                if name != NONE:
                    self._known(name, where)
                self._quorum = name
            case _:
                raise _malformed(where, "log, witness, group, or one quorum", " ".join(words)[:80])

    def policy(self) -> WitnessPolicy:
        if self._quorum is None:
            raise _malformed("the file", "a line `quorum <name>`", "none")
        return WitnessPolicy(tuple(self._logs), tuple(self._witnesses), self._groups, self._quorum)

    def _names(self) -> set[str]:
        return {w.name for w in self._witnesses} | set(self._groups)

    def _fresh(self, name: str, where: str) -> None:
        if name == NONE or name in self._names():
            raise _malformed(where, "a name that is not taken", name)

    def _known(self, name: str, where: str) -> None:
        if name not in self._names():
            raise _malformed(where, "a name of a line above", name)

    def _key(self, text: str, others: Iterable[bytes], where: str) -> VerifierKey:
        try:
            key = VerifierKey.parse(text)
        except Malformed as error:
            raise _malformed(where, error.expected or "a verifier key", error.found or text[:80]) from error
        if key.public in set(others):
            raise _malformed(where, "each key once", text[:80])
        return key

    def _count(self, text: str, members: int, where: str) -> int:
        words = {"any": 1, "all": members}
        if text in words:
            return words[text]
        if not re.fullmatch(r"[1-9][0-9]{0,5}", text) or int(text) > members:
            raise _malformed(where, f"any, all, or 1 to {members}", text[:20])
        return int(text)


def _malformed(where: str, expected: str, found: str) -> Malformed:
    # What was not UTF-8 came through as lone surrogates, which no message can carry.
    shown = found.encode("utf-8", "replace").decode()
    return Malformed("not a trust policy", where=where, expected=expected, found=shown)
