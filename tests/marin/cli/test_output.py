"""Tables on a terminal: they fit, and colour stays away where it is not wanted."""

from __future__ import annotations

import contextlib
import io
import re
import sys

import pytest

from marin.cli.looking.diff import print_comparison
from marin.cli.looking.ls import COLUMNS
from marin.cli.tables import Branch, fitted, print_fields, print_table, print_tree
from marin.process import progress
from marin.process.progress import bar
from marin.process.text import number_text
from marin.verify.segments.difference import Comparison, Difference

ROWS = [("2khr7ocq", "sha256:" + "ab" * 32, "a rather long remark that does not fit"), ("x", "y", "z")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("width", "digits"), [(50, 12), (80, 12), (200, 64)])
def test_a_table_fits_the_terminal_and_folds_no_digest(width: int, digits: int, monkeypatch: pytest.MonkeyPatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    print_table(("run", "digest", "remark"), ROWS, empty="")
    shown = screen.getvalue()
    assert not re.search(r"\x1b\[(3|4|9)\d", shown)  # bold may be, colours may not
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(map(len, plain.splitlines())) <= width
    assert re.findall(r"sha256:[0-9a-f]+", plain) == ["sha256:" + ("ab" * 32)[:digits]]
    assert {"remark", "that", "does", "not", "fit"} <= set(plain.split())


@pytest.mark.parametrize("width", [60, 80])
def test_a_tree_fits_the_terminal_and_shows_every_part_of_a_line(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    top = Branch(f"export  sha256:{'ab' * 32}  5.4 MB  run zrr7ixww, event 40")
    inner = top.add(f"train  sha256:{'cd' * 32}  15.9 MB  run zrr7ixww, event 34")
    inner.add(f"tokens  sha256:{'ef' * 32}  2.0 MB  run zrr7ixww, event 7").add("corpus (above)")
    top.add("tokenizer (above)")
    print_tree(top)
    whole = capsys.readouterr().out.splitlines()
    assert whole[2] == f"│   └── tokens  sha256:{'ef' * 32}  2.0 MB  run zrr7ixww, event 7", (
        "in a pipe nothing is left out"
    )
    assert whole[-1] == "└── tokenizer (above)"
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(width))
    print_tree(top)
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert re.findall(r"sha256:[0-9a-f]+", screen.getvalue()) == [f"sha256:{two * 6}" for two in ("ab", "cd", "ef")]
    words = re.sub(r"[│├└─]", " ", screen.getvalue()).split()
    assert words == re.sub(r"(sha256:.{12})\w*|[│├└─]", r"\1 ", "\n".join(whole)).split(), "no part is cropped"


def test_a_list_of_artifacts_and_a_comparison_wrap_no_word_at_60_columns(monkeypatch: pytest.MonkeyPatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    for name, value in (("COLUMNS", "60"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    row = ("sha256:" + "ab" * 32, "tokenizer", "checkpoint at 240", "124.8 kB", "rhkpssqw, zrr7ixww", "")
    print_table(("artifact", "step", "kind", "size", "runs", ""), [row], empty="", expendable=("step", "size"))
    lines = ("model.hidden_dim: 128 against 32", f"corpus: sha256:{'cd' * 32} against sha256:{'ef' * 32}")
    answers = (Difference("recipe", "different", lines), Difference("environment", "equal"))
    print_comparison(Comparison("rhkpssqw", "zrr7ixww", answers, ()))
    plain = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert max(len(line.rstrip()) for line in plain.splitlines()) <= 60
    short = ("sha256:" + "ab" * 6, "sha256:" + "cd" * 6, "sha256:" + "ef" * 6)
    assert {*short, "checkpoint", "240", "rhkpssqw,", "zrr7ixww", "model.hidden_dim:", "different"} <= set(
        plain.split()
    )
    assert "model.hidden_dim: 128 against 32" in plain


@pytest.mark.parametrize(
    ("value", "shown"), [(2000105.0, "2000105"), (3.29129517, "3.2913"), (1e-9, "1e-09"), (-2.0, "-2")]
)
def test_counts_are_whole_and_other_numbers_short(value: float, shown: str):
    assert number_text(value) == shown


def test_words_stay_whole_where_a_table_of_runs_has_to_be_narrow(monkeypatch: pytest.MonkeyPatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    columns = ("run", "started", "state", "dataset", "model", "steps", "loss", "perplexity", "verified")
    row = ("lxujwfvu", "2026-11-21 21:37:24Z", "completed", "grammar", "llama 2x32", "6", "6.2349", "516.1331", "PASS")
    print_table(columns, [row], empty="")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert max(map(len, plain.splitlines())) <= 80
    assert set(plain.split()) >= {word for cell in (*columns, *row) for word in cell.split()}


@pytest.mark.parametrize("width", [50, 60, 80])
def test_the_words_of_a_head_stay_whole_longer_than_those_below(width: int, monkeypatch: pytest.MonkeyPatch):
    """A name of a column that is broken inside is no name that anybody could give to `--columns`."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    columns = ("run", "verified", "perplexity", "train.tokens_per_second")
    row = ("lxujwfvu", "PASS, PARTIAL claimed by somebody-else@another-machine", "2476.7815", "12345.6789")
    print_table(columns, [row], empty="")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert max(len(line.rstrip()) for line in plain.splitlines()) <= width
    assert set(plain.split()) >= {*columns}


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (48, {"run", "perplexity", "verified", "model", "loss"}),
        (60, {"run", "perplexity", "verified", "model", "loss", "dataset"}),
        (80, {"run", "perplexity", "verified", "model", "loss", "dataset", "started", "steps"}),
        (200, {"run", "started", "dataset", "model", "steps", "loss", "perplexity", "verified"}),
    ],
)
def test_a_narrow_list_of_runs_goes_without_what_matters_least(
    width: int, shown: set[str], monkeypatch: pytest.MonkeyPatch
):
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    row = ("lxujwfvu", "2026-11-21 21:37", "grammar", "llama 2x32", "6", "6.2349", "516.1331", "PASS")
    print_table(COLUMNS, [row], empty="", expendable=("steps", "started", "dataset", "loss", "model"))
    head, line = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).splitlines()
    assert set(head.split()) == shown
    assert max(len(head.rstrip()), len(line.rstrip())) <= width
    assert {"lxujwfvu", "516.1331", "PASS"} <= set(line.split())


@pytest.mark.parametrize("width", [60, 80, 200])
def test_lines_and_fields_fit_a_terminal_and_are_whole_in_a_pipe(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    line = "12  run/abcd2345  " + "x" * 120
    assert fitted(line) == line
    print_fields([("verified", "no"), ("recipe", "sha256:" + "ab" * 32)])
    assert capsys.readouterr().out.splitlines()[1] == "recipe    sha256:" + "ab" * 32
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(width))
    assert fitted(line) == (line if width == 200 else line[: width - 1] + "…")
    print_fields([("verified", "no"), ("recipe", "sha256:" + "ab" * 32)])
    assert width == 60 or max(map(len, screen.getvalue().splitlines())) <= width


def test_a_pipe_gets_plain_columns(capsys: pytest.CaptureFixture[str]):
    print_table(("run", "digest", "remark"), ROWS, empty="")
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert shown.splitlines()[1].split()[1] == "sha256:" + "ab" * 32


def test_nothing_goes_to_stderr(capsys: pytest.CaptureFixture[str]):
    print_table(("run",), [], empty="no runs yet")
    assert capsys.readouterr() == ("", "no runs yet\n")


def test_progress_is_silent_in_a_pipe(capsys: pytest.CaptureFixture[str]):
    with bar("train", 10) as report:
        report(5, "loss 2.0")
    assert capsys.readouterr() == ("", "")


def test_progress_on_a_terminal_has_rate_and_remaining_time_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    for name, value in (("COLUMNS", "100"), ("TERM", "xterm"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    with bar("train", 10) as report:
        for done in range(1, 6):
            report(done, f"loss {9 - done}.000")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert re.search(r"train .* 5/10 [\d,.]+/s 0:\d\d:\d\d loss 4.000", plain), plain
    assert not re.search(r"\x1b\[(3|4|9)\d", screen.getvalue()), "no colours where NO_COLOR is set"
    assert capsys.readouterr().out == ""


def test_a_bar_says_a_line_in_ten_seconds_where_nobody_looks(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    caplog.set_level("INFO")
    with bar("requests", 134_000) as known, bar("requests", 0) as unknown:
        for clock[0] in (3.0, 9.9, 10.1, 15.0, 20.2):
            known(int(clock[0] * 1000), "one")
            unknown(int(clock[0] * 1000), "")
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "requests: 10,100 of 134,000, one",
        "requests: 10,100",
        "requests: 20,200 of 134,000, one",
        "requests: 20,200",
    ]


def test_a_bar_is_seen_while_a_library_is_kept_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a harness prints is led elsewhere; the bar goes on where it began."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    shown = bar("requests", 10)
    report = shown.__enter__()
    with contextlib.redirect_stderr(io.StringIO()) as quiet:
        report(7, "a note")
        shown.__exit__(None, None, None)
    assert quiet.getvalue() == "" and "7/10" in screen.getvalue() and "a note" in screen.getvalue()
