"""A small publication, made by hand, with everything that the formats treat specially."""

from __future__ import annotations

from math import inf, nan

from exporter.exposition import Body
from exporter.exposition_text import SLICE
from exporter.families import Block, Family, Publication, prefix
from exporter.negotiation import Format
from tests.exposition_readers import family

_TEMPERATURE = "accel_temperature_celsius"

PUBLICATION = Publication(
    1,
    (
        Family(
            _TEMPERATURE,
            "gauge",
            "Temperature by sensor.",
            "common",
            (
                Block((prefix(_TEMPERATURE, (("vendor", "nvidia"), ("device", "0"), ("sensor", "die"))),), (61,)),
                Block(
                    (
                        prefix(_TEMPERATURE, (("vendor", "amd"), ("device", "0"), ("sensor", "hotspot"))),
                        prefix(_TEMPERATURE, (("vendor", "amd"), ("device", "1"), ("sensor", "hotspot"))),
                    ),
                    (58.5, nan),
                ),
            ),
        ),
        family(
            "accel_energy_joules_total",
            "counter",
            [((("vendor", "nvidia"), ("device", "0")), 1234567.25)],
            help_="Energy used.",
            schema="common",
        ),
        family(
            "accel_info",
            "gauge",
            [((("vendor", "nvidia"), ("model", 'Big "X" \\ 1\nrev é')), 1)],
            help_="Facts of a device.",
            schema="common",
        ),
        family("accel_voltage_volts", "gauge", [], schema="common"),
        family(
            "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
            "counter",
            [((("gpu", "0"),), 0)],
            help_='Replays "seen" by the\nlink \\ bus.',
        ),
        family(
            "gpu_ecc_correct_total",
            "gauge",
            [((("gpu_id", "0"),), 3)],
            help_="A gauge, whatever its name says.",
        ),
        family("vendor_reads", "gauge", [((), 5)], help_="Reads now."),
        family("vendor_reads_total", "counter", [((), 7)], help_="Reads in all."),
        family(
            "vendor_writes_total",
            "counter",
            [((("unit", "0"),), 2**64 - 1), ((("unit", "1"),), nan), ((("unit", "2"),), -1)],
            help_="Writes in all.",
        ),
        family("vendor_idle", "gauge", [((), nan)], help_="Nothing but NaN."),
        family(
            "vendor_limit",
            "gauge",
            [
                ((("of", "most"),), inf),
                ((("of", "least"),), -inf),
                ((("of", "none"),), -0.0),
                ((("of", "big"),), 1e16),
                ((("of", "small"),), 1e-5),
                ((("of", "negative"),), -40),
            ],
            help_="Limits.",
        ),
    ),
)

_RESTARTS = {
    Format.TEXT: "accel_exporter_collector_restarts_total",
    Format.OPENMETRICS: "accel_exporter_collector_restarts",
}

OWN = {
    "accel_exporter_collector_up",
    "accel_exporter_collector_restarts_total",
    "accel_exporter_build_info",
}
COMMON = {"accel_temperature_celsius", "accel_energy_joules_total", "accel_info"}
RAW = {
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "gpu_ecc_correct_total",
    "vendor_reads",
    "vendor_reads_total",
    "vendor_writes_total",
    "vendor_limit",
}


def agent_text(format_: Format) -> bytes:
    """The agent's own metrics, as prometheus_client writes them."""
    text = f"""\
# HELP accel_exporter_collector_up 1 if the collector's newest sample came in time.
# TYPE accel_exporter_collector_up gauge
accel_exporter_collector_up{{collector="nvidia"}} 1.0
# HELP {_RESTARTS[format_]} Restarts.
# TYPE {_RESTARTS[format_]} counter
accel_exporter_collector_restarts_total{{collector="nvidia"}} 0.0
# HELP accel_exporter_build_info The version.
# TYPE accel_exporter_build_info gauge
accel_exporter_build_info{{version="0.9.0"}} 1.0
"""
    return text.encode() + (b"# EOF\n" if format_ is Format.OPENMETRICS else b"")


def names(body: Body) -> set[str]:
    return {line.split("{")[0].split(" ")[0] for line in body.content.decode().splitlines() if line[0] != "#"}


def big(version: int, series: int, size: int = SLICE) -> Publication:
    """A publication of one family, in blocks of ``size``."""
    blocks = tuple(
        Block(
            tuple(prefix("big", (("n", str(n)),)) for n in range(start, start + size)),
            tuple(range(start, start + size)),
        )
        for start in range(0, series, size)
    )
    return Publication(version, (Family("big", "gauge", "Big.", "raw", blocks),))
