"""The part of the configuration that says where metrics are pushed to over OTLP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from exporter.config import checks
from exporter.config.checks import SECONDS, checked

Protocol = Literal["http/protobuf", "grpc"]
DEFAULT_ENDPOINTS: Final[Mapping[Protocol, str]] = {
    "http/protobuf": "http://localhost:4318",
    "grpc": "http://localhost:4317",
}
Patterns = Annotated[tuple[Annotated[str, checked(checks.METRIC)], ...], Meta(max_length=2000)]


class OtlpEndpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One receiver, and what it is sent."""

    endpoint: Annotated[
        str,
        checked(checks.OTLP_ENDPOINT),
        Meta(
            description="Where the receiver is, such as `http://collector:4318`. With http/protobuf a URL without a "
            "path gets `/v1/metrics`; grpc also takes `HOST:PORT` and `unix:PATH`."
        ),
    ] = ""
    protocol: Annotated[Protocol, Meta(description="`grpc` needs the extra of that name.")] = "http/protobuf"
    headers: Annotated[
        Mapping[str, Annotated[str, Meta(max_length=4096)]],
        Meta(description="Headers (metadata, with grpc) to send, by their names."),
    ] = {}
    headers_file: Annotated[
        str,
        checked(checks.PATH_OR_EMPTY),
        Meta(description="A file with more of them, a line `NAME: VALUE` each; read again whenever it changes."),
    ] = ""
    compression: Annotated[Literal["gzip", "none"], Meta(description="How requests are compressed.")] = "gzip"
    timeout: Annotated[float, Meta(ge=0.1, le=300, description="For one request.", extra=SECONDS)] = 10.0
    interval: Annotated[
        float, Meta(ge=1, le=3600, description="Period of sending what `/metrics` would show.", extra=SECONDS)
    ] = 60.0
    certificate: Annotated[
        str,
        checked(checks.PATH_OR_EMPTY),
        Meta(description="Certificates (PEM) to trust; empty: the system's. Read again when the file changes."),
    ] = ""
    client_certificate: Annotated[
        str, checked(checks.PATH_OR_EMPTY), Meta(description="The agent's own certificate (PEM), for mutual TLS.")
    ] = ""
    client_key: Annotated[
        str, checked(checks.PATH_OR_EMPTY), Meta(description="The private key (PEM) of that certificate.")
    ] = ""
    insecure: Annotated[
        bool, Meta(description="With grpc, and an endpoint that does not begin with http:// or https://: no TLS.")
    ] = False
    proxy: Annotated[
        str,
        checked(checks.URL),
        Meta(description="A proxy's URL; empty: the environment's (`HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`)."),
    ] = ""
    schema: Annotated[
        Literal["common", "raw", "both"],
        Meta(description="`common`: the common schema and the agent's own metrics. `raw`: the vendors' own series."),
    ] = "common"
    names: Annotated[
        Literal["conventions", "prometheus"],
        Meta(
            description="`conventions`: OpenTelemetry's hardware conventions where there is one, else `accel.*`. "
            "`prometheus`: always `accel.*` with all labels, which a Prometheus makes the very series of `/metrics` of."
        ),
    ] = "conventions"
    include: Annotated[
        Patterns,
        Meta(description="Only these metrics, by their names on `/metrics` (`*` and `?` are wildcards); empty: all."),
    ] = ()
    exclude: Annotated[Patterns, Meta(description="And of those not these.")] = ()


class Otlp(OtlpEndpoint, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Push to OpenTelemetry receivers. These keys describe one receiver; `endpoints` has any others.

    OpenTelemetry's standard variables (`OTEL_EXPORTER_OTLP_ENDPOINT` and so on) stand for the keys of this one; what
    the file, `ACCEL_EXPORTER_*` or a flag says counts more. docs/opentelemetry.md lists them.
    """

    enabled: Annotated[
        bool | Literal["auto"],
        Meta(description="`auto`: if an endpoint is set. `true`: also without, to this host's usual port."),
    ] = "auto"
    endpoints: Annotated[
        tuple[OtlpEndpoint, ...],
        Meta(max_length=16, description="More receivers; each has its own settings and takes none from above."),
    ] = ()
    resource_attributes: Annotated[
        Mapping[str, Annotated[str, Meta(max_length=1024)]],
        Meta(description="Attributes of the resource, over those that were detected."),
    ] = {}
    queue_bytes: Annotated[
        int,
        Meta(
            ge=65536,
            le=1 << 30,
            description="Requests that wait for each receiver, as they will be sent; the oldest give way.",
        ),
    ] = 8 * 1024 * 1024
    request_bytes: Annotated[
        int,
        Meta(
            ge=65536,
            le=60 * 1024 * 1024,
            description="The largest request before compression; more metrics make more requests.",
        ),
    ] = 3 * 1024 * 1024
    give_up_after: Annotated[
        float, Meta(ge=0, le=86400, description="For how long one request is tried again.", extra=SECONDS)
    ] = 300.0
    stop_timeout: Annotated[
        float, Meta(ge=0, le=60, description="For the last requests when the agent stops.", extra=SECONDS)
    ] = 5.0


def receivers(otlp: Otlp) -> tuple[OtlpEndpoint, ...]:
    """Those that are in use: none if push is off or nothing says where to."""
    if otlp.enabled is False:
        return ()
    found = list(otlp.endpoints)
    if otlp.endpoint or (otlp.enabled is True and not found):
        own = {name: getattr(otlp, name) for name in OtlpEndpoint.__struct_fields__}
        own["endpoint"] = otlp.endpoint or DEFAULT_ENDPOINTS[otlp.protocol]
        found.insert(0, OtlpEndpoint(**own))
    return tuple(found)
