"""An error is one line, keeps its parts, and crosses process boundaries."""

import pickle

import pytest

from ledger import LedgerError, Refused, Tampered, Unavailable


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (LedgerError("broken"), "broken"),
        (LedgerError("broken", where="log/x"), "broken: log/x"),
        (
            Tampered("broken", where="log/x", expected="a", found="b", cure="restore it"),
            "broken: log/x: expected a, found b; restore it",
        ),
        (LedgerError("broken", found="two\nlines  here"), "broken: found two lines here"),
        (LedgerError("broken", cure="repeat"), "broken; repeat"),
    ],
)
def test_the_message_is_one_line(error, line):
    assert str(error) == line


def test_exit_statuses():
    assert (LedgerError("x").exit_code, Refused("x").exit_code, Unavailable("x").exit_code) == (1, 2, 3)


def test_an_error_survives_pickling():
    error = Tampered("broken", where="log/x", expected="a", found="b", cure="restore it")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is Tampered
    assert (again.what, again.where, again.expected, again.found, again.cure) == (
        "broken",
        "log/x",
        "a",
        "b",
        "restore it",
    )
