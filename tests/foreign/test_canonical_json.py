"""RFC 8785 by implementations of others: byte for byte what `ledger` writes, and their cases read by `ledger`."""

import json
import random
import struct

import judges
import pytest
from programs import ask

from ledger import LedgerError, canonical_bytes, parse_canonical

CASES = "usr/share/gocode/src/github.com/gowebpki/jcs/testdata"


def numbers(seed, count):
    """Doubles of every size, by their bits; the integers that a double holds exactly, at the borders too."""
    chosen = random.Random(seed)
    while count:
        (value,) = struct.unpack("<d", chosen.randbytes(8))
        if value - value == 0:  # neither infinite nor NaN
            yield value
            count -= 1
    for power in range(54):
        yield from (2.0**power, -(2.0**power), 2.0**power - 1)
    yield from (5e-324, 1.7976931348623157e308, 1e21, 1e20, 1e-6, 1e-7, 0.1 + 0.2, -0.0)


def texts(seed, count):
    chosen = random.Random(seed)
    points = [
        0,
        8,
        9,
        10,
        13,
        31,
        34,
        47,
        92,
        127,
        128,
        0x2028,
        0xD7FF,
        0xE000,
        0xFB33,
        0xFFFF,
        0x10000,
        0x1F600,
        0x10FFFF,
    ]
    for _ in range(count):
        length = chosen.randrange(9)
        yield "".join(chr(chosen.choice([*points, chosen.randrange(32, 127)])) for _ in range(length))


def values():
    yield from numbers(0, 3000)
    yield from texts(1, 1000)
    chosen = random.Random(2)
    for names in zip(*(texts(seed, 400) for seed in range(3, 9)), strict=True):
        yield {name: chosen.choice([None, True, [], {}, [1, [2.5, "x"]], {"b": 1, "a": -0.5}]) for name in names}


def test_jcs_in_go(judge):
    program = judges.go_program("jcs")
    judged = judge("gowebpki/jcs", judges.version("go-sources", "golang-github-gowebpki-jcs-dev"))
    given = list(values())
    # Our text goes in with its members turned round and spaces between, so that there is something to do.
    turned = [json.dumps(turn(value), separators=(" , ", " : ")) for value in given]
    status, said = ask(program, stdin="\n".join(turned).encode())
    assert status == 0, said[-500:]
    ours = [canonical_bytes(value).decode() for value in given]
    assert said.split("\n")[:-1] == ours
    judged.accepts(f"{len(ours)} values: doubles by their bits, texts, objects, byte for byte what we write")

    folder = judges.room("go-sources") / CASES
    names = sorted(path.name for path in (folder / "input").iterdir())
    for name in names:
        wanted = (folder / "output" / name).read_bytes().rstrip(b"\n")
        assert canonical_bytes(json.loads((folder / "input" / name).read_text())) == wanted, name
        assert canonical_bytes(parse_canonical(wanted)) == wanted
        with pytest.raises(LedgerError):
            parse_canonical(wanted + b" ")
    judged.accepts(f"its {len(names)} published cases, read and written by us")

    bad = ['{"a":1,"a":2}', '"\\ud800"', '{"a":1}}', '"\u0001"', '{"a":NaN}', "[1,]"]
    status, said = ask(program, stdin="\n".join(bad).encode())
    assert status == 0
    for text, answer in zip(bad, said.splitlines(), strict=True):
        assert answer.startswith("refused"), (text, answer)
        with pytest.raises(LedgerError):
            parse_canonical(text.encode())
    # It reads numbers as Go does, which RFC 8785 leaves open; we read them as RFC 8259 has them.
    for text in ("+1", ".5", "01", "0x1p4"):
        with pytest.raises(LedgerError):
            parse_canonical(text.encode())
    judged.refuses(f"{len(bad)} texts that are no I-JSON, as we do")


def turn(value):
    """The same value with the members of every object in another order."""
    if isinstance(value, dict):
        return {name: turn(value[name]) for name in reversed(value)}
    return [turn(one) for one in value] if isinstance(value, list) else value


def test_jcs_in_javascript(judge):
    """The reference for numbers is JavaScript's own printing of doubles, which only an engine of it has."""
    script = """
const canonicalize = require('canonicalize');
const write = typeof canonicalize === 'function' ? canonicalize : canonicalize.default;
for (const line of require('fs').readFileSync(0, 'utf8').split('\\n')) {
  let answer;
  try { answer = write(JSON.parse(line)); } catch (error) { answer = 'refused ' + error; }
  console.log(answer);
}
"""
    judged = judge("canonicalize", judges.version("canonicalize"))
    modules = {"NODE_PATH": str(judges.room("canonicalize") / "node_modules")}
    given = list(values())
    lines = "\n".join(json.dumps(turn(value)) for value in given)
    status, said = ask("node", "-e", script, stdin=lines.encode(), env=modules)
    assert status == 0, said[-500:]
    assert said.split("\n")[:-1] == [canonical_bytes(value).decode() for value in given]
    judged.accepts(f"{len(given)} values, byte for byte what we write")
    bad = ['"\\ud800"', '{"a":01}', '{"a":1}}', '"\u0001"', '{"a":NaN}', "[1,]", "+1", ".5", "0x10"]
    status, said = ask("node", "-e", script, stdin="\n".join(bad).encode(), env=modules)
    for text, answer in zip(bad, said.splitlines(), strict=True):
        assert answer.startswith("refused"), (text, answer)
        with pytest.raises(LedgerError):
            parse_canonical(text.encode())
    judged.refuses(f"{len(bad)} texts that are no I-JSON, as we do")
