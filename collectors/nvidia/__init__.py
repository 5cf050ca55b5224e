"""NVIDIA GPUs, read through NVML (``libnvidia-ml.so.1``) with the binding nvidia-ml-py."""

from __future__ import annotations

from collectors.base import Collector, Settings, Unavailable


def open_collector(settings: Settings) -> Collector:
    """Make the collector. The driver is not touched before ``discover``. Raises Unavailable without the binding."""
    try:
        import pynvml  # noqa: F401
    except ImportError:
        raise Unavailable("no_library", "the Python binding is missing: pip install 'accel-exporter[nvidia]'") from None
    from collectors.nvidia.nvml import NvmlCollector

    return NvmlCollector(settings)
