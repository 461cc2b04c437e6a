"""Says at the end what the TPU's compiler cost: processor seconds, and the memory of the largest process."""

import resource
from pathlib import Path

import pytest
from compiled_once import compiled_once

from tests.marin.training.conftest import on_two_devices, worker

__all__ = ["compiled_once", "on_two_devices", "worker"]

HERE = Path(__file__).parent


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Pytest's hook: one line, where tests of this folder alone were executed: what others cost would count with them."""
    executed = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, [])]
    root = terminalreporter.config.rootpath
    if not executed or not all(HERE in (root / report.nodeid.partition("::")[0]).parents for report in executed):
        return
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(each.ru_utime + each.ru_stime for each in used)
    most = max(each.ru_maxrss for each in used) / 2**20
    terminalreporter.write_line(
        f"before the TPU's compiler: {seconds:.0f} s of processors, at most {most:.1f} GiB a process"
    )
