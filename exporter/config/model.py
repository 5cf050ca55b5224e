"""The configuration: one typed model, which ``exporter.config.load.load`` fills.

Every setting says here what it means, its unit and its bounds. The loader, the errors and docs/configuration.md
read them from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from collectors.base import Group
from exporter.config import checks
from exporter.config.attribution import Attribution
from exporter.config.checks import SECONDS, checked, keys_are_collectors
from exporter.config.collectors import CollectorConfig, RawChoice, SeriesNames
from exporter.config.otlp import Otlp
from exporter.config.paths import Paths

DEFAULT_PORT: Final = 9859
"""Not 9090, 9100, 9400 or 8080, which other programs of such a node listen on."""


class NodeLabels(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Labels that say where a series comes from."""

    node: Annotated[
        bool,
        Meta(
            description="Put the label `node` on every device series. Switch it off where discovery labels the target."
        ),
    ] = True


class Intervals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often each group of readings is taken. Scrapes do not read devices: they get the newest reading.

    An interval that is not set follows `normal`: `fast` is never longer and `slow` never shorter.
    """

    fast: Annotated[float, Meta(ge=0.1, le=3600, description="Period of what moves quickly.", extra=SECONDS)] = 1.0
    normal: Annotated[float, Meta(ge=0.1, le=3600, description="Period of most readings.", extra=SECONDS)] = 5.0
    slow: Annotated[
        float, Meta(ge=0.1, le=3600, description="Period of what rarely changes or is costly to read.", extra=SECONDS)
    ] = 60.0

    def period(self, group: Group) -> float:
        """Seconds between two readings of the group."""
        return {"fast": self.fast, "normal": self.normal, "slow": self.slow}[group]


class Collection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the processes that read the devices are watched."""

    deadline: Annotated[
        float,
        Meta(
            ge=0.1,
            le=600,
            description="A reading that takes longer is given up, and its process is killed and started anew.",
            extra=SECONDS,
        ),
    ] = 10.0
    max_age_periods: Annotated[
        float,
        Meta(
            ge=1,
            le=1000,
            description="Values older than so many periods of their group vanish: a stale value is no value.",
        ),
    ] = 3.0
    backoff_min: Annotated[
        float,
        Meta(
            ge=0.1,
            le=3600,
            description="Pause before the first restart of a process that failed; doubles each time.",
            extra=SECONDS,
        ),
    ] = 1.0
    backoff_max: Annotated[float, Meta(ge=0.1, le=86400, description="The longest such pause.", extra=SECONDS)] = 300.0
    retry_unavailable: Annotated[
        float,
        Meta(
            ge=1, le=86400, description="Pause before a vendor that is not present is looked for again.", extra=SECONDS
        ),
    ] = 60.0
    stop_grace: Annotated[
        float,
        Meta(ge=0, le=60, description="How long a reading under way may go on when the agent stops.", extra=SECONDS),
    ] = 5.0
    worker_memory_mib: Annotated[
        int,
        Meta(
            ge=0,
            le=65536,
            description="A reading process that has grown to more MiB than this, and to twice what it took after its "
            "first readings, is started anew: a vendor's library may leak. 0: never.",
        ),
    ] = 160


class SchemaChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which series are served."""

    common: Annotated[bool, Meta(description="Serve the common schema (`accel_*`).")] = True
    raw: Annotated[
        RawChoice | SeriesNames,
        Meta(
            description="Which of the vendors' own series are served: those that the vendor's exporter serves by "
            "default, all, none, or those named here (`*` and `?` are wildcards).",
        ),
    ] = "default"
    raw_counters: Annotated[
        str,
        checked(checks.PATH_OR_EMPTY),
        Meta(
            description="A counters file (lines of `name, type, help`); its names replace `raw` for each collector "
            "that has any of them."
        ),
    ] = ""


class Simulation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Devices that do not exist, for demonstrations and load tests. `accel_info` marks them as simulated."""

    devices: Annotated[
        Mapping[str, Annotated[int, Meta(ge=1, le=4096)]],
        keys_are_collectors("Number of simulated devices by collector. If there are any, no real device is read."),
    ] = {}
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1, description="The same seed gives the same numbers.")] = 0
    scenario: Annotated[
        Literal["mix", "training", "inference", "idle", "failing"],
        Meta(
            description="What the devices do. `training`: steps at full load, with checkpoints. `inference`: load that "
            "comes and goes. `idle`: nothing. `failing`: in ten minutes sound, memory errors, heat and throttling, a "
            "fatal fault, lost for four minutes, and sound again (docs/alerts.md, *Try it*). `mix`: each of these, one "
            "device after the other."
        ),
    ] = "mix"
    parts: Annotated[
        Mapping[str, Annotated[int, Meta(ge=0, le=4096)]],
        keys_are_collectors("How many of a collector's simulated devices are cut into parts."),
    ] = {}
    distinct: Annotated[
        bool, Meta(description="Give nearly every series a number of its own; equal ones flatter load tests.")
    ] = False


class DeviceClass(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule that gives devices the operator's own name for their kind. The first that fits counts; empty fits all."""

    device_class: Annotated[
        str, checked(checks.NAME), Meta(description="The name, as `accel_info` shows it in `device_class`.")
    ]
    vendor: Annotated[str, checked(checks.NAME_OR_EMPTY), Meta(description="The vendor, as the label says.")] = ""
    model: Annotated[
        str,
        checked(checks.REGEX),
        Meta(max_length=200, description="Regular expression that is found in the model's name."),
    ] = ""
    memory_min_gib: Annotated[
        float, Meta(ge=0, le=1e6, description="The least device memory.", extra={"unit": "GiB"})
    ] = 0.0


class Health(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How `accel_health_state` is found."""

    fault_hold: Annotated[
        float,
        Meta(
            ge=0,
            le=604800,
            description="For how long after a fault the device's health stays what the fault made it.",
            extra=SECONDS,
        ),
    ] = 600.0


class Http(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds that keep slow and hostile clients from hurting the others."""

    max_connections: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Connections at a time. At the limit an idle or stalled one is closed for each new one. "
            "The soft limit of open files is raised for them as far as the hard one lets it; else there are fewer.",
        ),
    ] = 64
    max_header_bytes: Annotated[
        int, Meta(ge=1024, le=1 << 20, description="The largest request line and the largest header.")
    ] = 8192
    header_timeout: Annotated[
        float,
        Meta(
            ge=0.1, le=600, description="For a client to send its request, the TLS handshake included.", extra=SECONDS
        ),
    ] = 10.0
    write_timeout: Annotated[
        float, Meta(ge=0.1, le=600, description="For a client to take the answer.", extra=SECONDS)
    ] = 30.0
    idle_timeout: Annotated[
        float, Meta(ge=0, le=3600, description="How long a connection is kept for the next request.", extra=SECONDS)
    ] = 75.0
    socket_mode: Annotated[
        str, checked(checks.SOCKET_MODE), Meta(description="Permissions of Unix sockets in `listen`.")
    ] = "0660"


class Admin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests that change what the agent does. Off unless switched on."""

    release: Annotated[
        bool,
        Meta(description="Allow the request to let go of the devices, so that their driver can be unloaded."),
    ] = False
    release_seconds: Annotated[
        float,
        Meta(ge=1, le=3600, description="After so long the devices are taken up again by themselves.", extra=SECONDS),
    ] = 600.0


class Log(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent's own log, on standard error."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="The least severity that is written.")
    ] = "info"
    format: Annotated[Literal["json", "text"], Meta(description="One JSON object a line, or text for people.")] = "json"


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set."""

    listen: Annotated[
        tuple[Annotated[str, checked(checks.LISTEN)], ...],
        Meta(
            min_length=1,
            max_length=16,
            description="Addresses to serve on. Port 0 takes a free one; `[::]:9859` is IPv6, on most hosts IPv4 too; "
            "`unix:/PATH` is a Unix socket.",
        ),
    ] = (f"0.0.0.0:{DEFAULT_PORT}",)
    node: Annotated[
        str,
        checked(checks.NODE_NAME),
        Meta(description="This node's name; empty: the environment variable `NODE_NAME`, else the host's name."),
    ] = ""
    labels: NodeLabels = NodeLabels()
    links: Annotated[
        Literal["sum", "each"], Meta(description="Links between devices: one series a device, or one a link.")
    ] = "sum"
    intervals: Intervals = Intervals()
    collection: Collection = Collection()
    schema: SchemaChoice = SchemaChoice()
    collectors: Annotated[
        Mapping[str, CollectorConfig], keys_are_collectors("Settings of each vendor's collector, by its name.")
    ] = {}
    simulate: Simulation = Simulation()
    device_classes: Annotated[
        tuple[DeviceClass, ...], Meta(max_length=1000, description="Rules that name kinds of devices, in order.")
    ] = ()
    health: Health = Health()
    attribution: Attribution = Attribution()
    otlp: Otlp = Otlp()
    paths: Paths = Paths()
    web_config_file: Annotated[
        str,
        checked(checks.PATH_OR_EMPTY),
        Meta(
            description="A file in the format of Prometheus' exporter-toolkit, with TLS and users "
            "(docs/web-config.md). It and its certificates are read again when they change. Empty: plain HTTP for all."
        ),
    ] = ""
    http: Http = Http()
    admin: Admin = Admin()
    log: Log = Log()
