"""Google TPUs: GKE's tpu-device-plugin where it answers, else the workload's own metric service and the host.

libtpu is never loaded: it takes the chip. The ports on which it wants to listen are never bound, and never held.
"""

from __future__ import annotations

from collectors.base import Collector, Settings, Unavailable


def open_collector(settings: Settings) -> Collector:
    """Make the collector; nothing is asked yet. Raises Unavailable without the HTTP/2 library or for wrong options."""
    try:
        import h2  # noqa: F401
    except ImportError:
        raise Unavailable("no_library", "the HTTP/2 library is missing: pip install h2") from None
    from collectors.tpu.collector import TpuCollector
    from collectors.tpu.options import read_options

    try:
        options = read_options(settings)
    except ValueError as error:  # msgspec.ValidationError is one
        raise Unavailable("no_driver", f"collectors.tpu.options: {error}") from error
    return TpuCollector(settings, options)
