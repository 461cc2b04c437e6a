"""Energy counters as Linux has them: microjoules of each processor package, which wrap around. This machine may have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from marin.record import meter
from marin.record.meter import ENERGY, EnergyCounters, Meter


def zone(folder: Path, name: str, count: int, whole: int = 999_999) -> Path:
    place = folder / name
    place.mkdir(parents=True)
    (place / "energy_uj").write_text(f"{count}\n")
    (place / "max_energy_range_uj").write_text(f"{whole}\n")
    return place / "energy_uj"


def test_packages_are_summed_and_a_counter_wraps_around(tmp_path: Path) -> None:
    first, second = zone(tmp_path, "intel-rapl:0", 100_000), zone(tmp_path, "intel-rapl:1", 900_000)
    zone(tmp_path, "intel-rapl:0:0", 0)  # cores: counted with their package
    zone(tmp_path, "dtpm", 0)
    counters = EnergyCounters(tmp_path)
    first.write_text("350000")
    second.write_text("50000")
    assert counters.lap() == pytest.approx(0.25 + 0.15)
    assert counters.lap() == 0.0


def test_what_cannot_be_read_is_not_measured(tmp_path: Path) -> None:
    assert EnergyCounters(tmp_path / "nothing").lap() is None
    count = zone(tmp_path, "intel-rapl:0", 5)
    counters = EnergyCounters(tmp_path)
    count.write_text("no number")
    assert counters.lap() is None
    count.unlink()
    assert EnergyCounters(tmp_path).lap() is None


def test_a_lap_has_energy_only_where_it_was_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ENERGY not in Meter(_energy=EnergyCounters(tmp_path)).lap(1, 1)
    zone(tmp_path, "intel-rapl:0", 5)
    assert Meter(_energy=EnergyCounters(tmp_path)).lap(1, 1)[ENERGY] == 0.0
    assert Path("/sys/class/powercap") == meter.COUNTERS
