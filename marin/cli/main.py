"""`marin`: the root of all commands, and the one place where an error becomes a line and an exit status.

Commands are loaded when they are called, never for `marin --help`: a command's module may import what its work
needs, and the root stays fast. The one-line helps therefore stand in the table below; a test compares them with
the commands.

Exit status: 0 done, 1 something is wrong (a check failed, a conflict, damage), 2 wrong usage, 3 something needed
is missing or this machine cannot do it, 4 a verification of a part found nothing wrong, 70 a defect in Marin, 130
interrupted, 141 the reader of our output left.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import resource
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from marin import __version__
from marin.cli.lazy import COMPLETING, Lazy, LazyGroup, root_option
from marin.cli.output import say
from marin.process.interpreter import begin_again, collect_less_often, leave, with_room
from marin.process.interruption import Attended
from marin.process.logs import log_to
from marin.process.text import as_commands

EXIT_MISSING = 3
EXIT_DEFECT = 70
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


logger = logging.getLogger(__name__)

COMMANDS: dict[str, Lazy] = {
    "init": Lazy("marin.cli.init", "Make a root with its log, and a signing key."),
    "doctor": Lazy("marin.cli.doctor", "Say what this machine can reproduce, and why not."),
    "stage": Lazy(
        "marin.cli.running.stage",
        "Run one stage of the pipeline: corpus, tokenizer, tokens, train, evaluate or export.",
    ),
    "repro": Lazy(
        "marin.cli.running.repro",
        "Run every stage of the pipeline that is not up to date: what `dvc repro` does, without DVC.",
    ),
    "run": Lazy(
        "marin.cli.running.run",
        "Execute the steps of an experiment file whose results the ledger does not have, or label a run.",
    ),
    "train": Lazy(
        "marin.cli.running.train", "Compose a recipe from the groups in conf/ and run the whole pipeline on it."
    ),
    "verify": Lazy(
        "marin.cli.verifying.verify", "Replay RUN and judge it: ledger, artifacts, data, training, model, evaluation."
    ),
    "trust": Lazy(
        "marin.cli.verifying.trust", "Say whose keys, witnesses, time stamps and Git repositories you trust."
    ),
    "diff": Lazy("marin.cli.looking.diff", "Name the first difference of two runs, in the order of causes."),
    "ls": Lazy("marin.cli.looking.ls", "List runs, artifacts, experiments or sweeps."),
    "show": Lazy("marin.cli.looking.show", "Show a run, a step, an artifact, an event or the runs behind a number."),
    "watch": Lazy("marin.cli.looking.watch", "Follow RUN until it ends: train step, losses, speed, time left."),
    "sample": Lazy("marin.cli.models.sample", "Continue PROMPT by the trained model of RUN."),
    "lineage": Lazy(
        "marin.cli.looking.lineage",
        "Show what something was made of, back to the raw data: a tree of steps and digests.",
    ),
    "log": Lazy("marin.cli.looking.log", "Print events in the order of the log."),
    "ledger": Lazy("marin.cli.ledger.group", "Work on the log itself: append, check, prove."),
    "store": Lazy("marin.cli.store.group", "Work on the artifact store: put, get, push, pull, verify, collect."),
    "backup": Lazy(
        "marin.cli.store.backup",
        "Copy the whole root to DEST, a folder, gs:// or s3://: its log, and every artifact that the log names.",
    ),
    "restore": Lazy(
        "marin.cli.store.backup",
        "Bring a backup back: the log at SOURCE and its artifacts into the root here (--root, MARIN_ROOT or .marin).",
    ),
    "export": Lazy(
        "marin.cli.sharing.export",
        "Write a run for other tools: Hugging Face, DVC, OCI, signatures, W&B, in-toto, MLPerf, evaluations, dossiers.",
    ),
    "completion": Lazy(
        "marin.cli.completion",
        "Print the script that completes commands, options, runs, recipes, metrics and devices in a shell.",
    ),
}


CHATTY = ("levanter.tensorstore_serialization",)
"""Loggers of libraries whose warnings say nothing: this one warns of every None in an optimizer's state."""

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Marin(LazyGroup):
    """The root, whose first two options say how much is told."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """With logging set up, so that loading a command can say so."""
        if not ctx.resilient_parsing:
            configure_logging(ctx.params["verbose"], quiet=ctx.params["quiet"])
        return super().resolve_command(ctx, args)


def plugin_commands() -> dict[str, Lazy]:
    """The commands of plugins, by name; Marin's own come first. One with a name that is taken is left out, with a warning."""
    from marin.provenance.plugins import load_plugins  # here: a command of the core asks for no plugin

    found: dict[str, Lazy] = {}
    for plugin, table in load_plugins("marin.commands"):
        if taken := sorted(table.keys() & (COMMANDS.keys() | found.keys())):
            logger.warning("the commands of plugin %s are left out: %s is taken", plugin, ", ".join(taken))
        else:
            found |= table
    return found


def plugins_not_there() -> list[str]:
    """Marin's own plugins that have commands, and whose folders are not there."""
    from marin.provenance.plugins import own_names

    return own_names("marin.commands", there=False)


@click.command(
    cls=Marin, members=COMMANDS, others=plugin_commands, lacking=plugins_not_there, context_settings=SETTINGS
)
@click.option("-v", "--verbose", count=True, help="Tell more on stderr; -vv tells what libraries say.")
@click.option("-q", "--quiet", is_flag=True, help="Only warnings and errors on stderr.")
@click.version_option(__version__, prog_name="marin", message="%(prog)s %(version)s")
def marin(verbose: int, quiet: bool) -> None:
    """Train language models so that anyone can replay the training bit for bit, and check it.

    \b
    Examples:
      marin doctor             what this machine can reproduce
      marin ls runs            what has been run here
      marin verify latest      replay the newest run and compare every bit
    """


marin.params.insert(0, root_option())


def configure_logging(verbose: int, *, quiet: bool) -> None:
    """Progress of our own packages to stderr; libraries only when something is wrong, or with -vv."""
    others = logging.INFO if verbose > 1 else logging.WARNING
    own = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
    log_to(sys.stderr, level=others, own=own, form="%(name)s: %(message)s" if verbose else "%(message)s")
    if not verbose:
        for name in CHATTY:
            logging.getLogger(name).setLevel(logging.ERROR)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The `marin` program."""
    if arguments is None:
        begin_again(sys.argv[1:])
    collect_less_often()
    leave(with_room(run, arguments))


NO_MEMORY = "not enough memory for what was read; give the command more, or the limit of --memory"


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. A failure is one line on stderr, or raised with MARIN_DEBUG=1."""
    debug = os.environ.get("MARIN_DEBUG", "") not in ("", "0")
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # that PyTorch is not there concerns nobody here
    try:
        with Attended():  # whatever a command has begun, it ends: leases, workers, folders
            status = call(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
        return status
    except (click.Abort, KeyboardInterrupt) as asked:
        complain(f"interrupted by {asked}" if str(asked).startswith("SIG") else "interrupted")
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption):  # whatever ends in an "s" looks like --help to click
            near = [option for option in error.possibilities or () if option != "--help"]
            error = click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx)
        said = io.StringIO()
        error.show(said)
        say(*said.getvalue().rstrip("\n").split("\n"), err=True)
        return error.exit_code
    except OSError as error:
        if error.errno == errno.EPIPE:
            # Nobody reads our output any more: what is still buffered goes nowhere, without a message at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EXIT_BROKEN_PIPE
        if debug:
            raise
        if error.errno == errno.ENOMEM:
            complain(NO_MEMORY)
            return EXIT_MISSING
        complain(explain_os_error(error))
        return EXIT_MISSING if _cannot(error) else 1
    except Exception as error:
        if debug:
            raise
        if _lacks_memory(error):
            complain(NO_MEMORY)
            return EXIT_MISSING
        return report(error)


def _lacks_memory(error: Exception) -> bool:
    """Where memory is limited, C extensions that get none say so in other words: a library that cannot be mapped, or a
    call that fails without an error set."""
    bounds = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    limited = any(resource.getrlimit(bound)[0] != resource.RLIM_INFINITY for bound in bounds)
    return isinstance(error, MemoryError) or (limited and isinstance(error, SystemError | ImportError))


def _cannot(error: BaseException | None) -> bool:
    """Whether this user may not write, the file system is read-only, or the disk is full: nothing that was asked for is
    wrong."""
    from ledger import DISK_FULL  # here, so that a help text does not load the ledger

    full = isinstance(error, OSError) and error.errno in {errno.EROFS, *DISK_FULL}
    return full or isinstance(error, PermissionError)


def call(arguments: Sequence[str]) -> int:
    """Parse and call. Not ``click.Command.main``, which has its own ideas of interruptions and closed pipes."""
    if COMPLETING in os.environ:
        marin.main(prog_name="marin")  # shell completion, which is click's alone
    try:
        with marin.make_context("marin", list(arguments)) as context:
            marin.invoke(context)
    except click.exceptions.Exit as ending:
        return ending.exit_code
    return 0


def report(error: Exception) -> int:
    """Say ``error`` on one line and return the exit status that its kind has."""
    from ledger import LedgerError, StorageFailed  # here, so that a help text does not load the ledger

    if isinstance(error, LedgerError):
        complain(as_commands(str(error)))
        unable = isinstance(error, StorageFailed) and _cannot(error.__cause__)
        return EXIT_MISSING if unable else error.exit_code
    if isinstance(error, ImportError):
        from marin.provenance.extras import not_installed

        if (absent := not_installed(error)) is not None:
            complain(str(absent))
            return absent.exit_code
    what = f"defect in Marin: {type(error).__name__}: {error}"
    complain(f"{what}; MARIN_DEBUG=1 shows the traceback, please report it")
    return EXIT_DEFECT


def explain_os_error(error: OSError) -> str:
    """One line for what the operating system refused."""
    named = error.filename2 or error.filename  # of a copy the second is written
    where = f": {named}" if named else ""
    cures = {
        errno.ENOSPC: "free some space and run the same command again",
        errno.EDQUOT: "free some of your quota and run the same command again",
        errno.EACCES: "give this user the rights, or name another place",
        errno.EPERM: "give this user the rights, or name another place",
        errno.EROFS: "the file system is mounted read-only: name another place",
    }
    cure = cures.get(error.errno or 0, "MARIN_DEBUG=1 shows where")
    return f"{error.strerror or type(error).__name__}{where}; {cure}"


def complain(message: str) -> None:
    """One line on stderr."""
    say(f"marin: {' '.join(message.split())}", err=True)


if __name__ == "__main__":
    main()
