"""When the NVIDIA collector looks for an engine while it reads NVML."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from collectors.base import Device, Group, Sample, Settings, Unavailable
from collectors.nvidia import ways
from collectors.nvidia.dcgm import collector as dcgm
from collectors.nvidia.dcgm.address import Address
from exporter.assemble import assemble
from exporter.config import CollectorConfig, Config
from exporter.registry import catalogues

ENGINE = Address("unix", "/run/engine")


class Reads:
    """A collector whose only device tells which one it is."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.closed = 0

    def discover(self) -> Sequence[Device]:
        return [Device(uuid=self.name, index="0")]

    def sample(self, group: Group) -> Sample:
        return Sample()

    def close(self) -> None:
        self.closed += 1


class Refuses(Reads):
    def discover(self) -> Sequence[Device]:
        raise Unavailable("version_mismatch", "libdcgm.so.4 is too new")


class World:
    """What the collector meets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine: Address | None = None
        self.looks = 0
        self.nvml, self.dcgm = Reads("by nvml"), Reads("by dcgm")
        monkeypatch.setattr(ways, "reachable", self._reachable)
        monkeypatch.setattr(ways, "open_nvml", lambda settings: self.nvml)
        monkeypatch.setattr(dcgm, "DcgmCollector", lambda settings: self.dcgm)
        monkeypatch.setattr(ways, "_LOOK_EVERY", 0.0)
        self.best = ways.BestWay(Settings(wanted={}))

    def _reachable(self, options: object) -> Address | None:
        self.looks += 1
        return self.engine

    def way(self) -> tuple[str, str]:
        return self.best.discover()[0].uuid, self.best.source


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_an_engine_that_comes_up_later_is_taken(world: World) -> None:
    assert world.way() == ("by nvml", "nvml")
    assert not world.best.sample("normal").rediscover
    world.engine = ENGINE
    assert world.best.sample("normal").rediscover
    assert world.way() == ("by dcgm", "dcgm")
    assert (world.nvml.closed, world.dcgm.closed) == (1, 0)
    world.best.close()
    assert (world.nvml.closed, world.dcgm.closed) == (1, 1)


def test_it_does_not_look_with_every_sample(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "_LOOK_EVERY", 60.0)
    world.way()
    looks = world.looks
    world.engine = ENGINE
    for _ in range(10):
        assert not world.best.sample("normal").rediscover
    assert world.looks == looks


def test_an_engine_of_no_use_is_looked_at_seldom_and_told_once(world: World) -> None:
    world.engine, world.dcgm = ENGINE, Refuses("refuses")
    assert world.way() == ("by nvml", "nvml")
    assert world.dcgm.closed == 1
    assert [error.kind for error in world.best.sample("normal").errors] == ["library"]
    assert world.way() == ("by nvml", "nvml")
    sample = world.best.sample("normal")
    assert (sample.errors, sample.rediscover) == ((), False)
    # NVML stays open: what it knows of its GPUs is not thrown away.
    assert world.nvml.closed == 0


def test_a_lost_engine_is_let_go_of(world: World) -> None:
    world.engine = ENGINE
    world.way()
    world.engine = None
    assert world.way() == ("by nvml", "nvml")
    assert world.dcgm.closed == 1


def test_before_a_discovery_nothing_is_read(world: World) -> None:
    with pytest.raises(Unavailable):
        world.best.sample("normal")
    world.best.close()
    assert world.looks == 0


def test_beside_the_bridge_no_series_is_read_twice() -> None:
    config = Config(collectors={"nvidia": CollectorConfig(source="both")})
    members = [member.spec for member in assemble(config, catalogues()) if member.spec.name.startswith("nvidia")]
    native, bridge = (frozenset[str]().union(*spec.wanted.values()) for spec in members)
    assert not native & bridge
    # What NVML cannot give comes from dcgm-exporter even while DCGM could be read.
    assert "DCGM_EXP_GPU_HEALTH_STATUS" in bridge
    assert "DCGM_FI_DEV_GPU_TEMP" in native
