"""NVIDIA GPUs: through NVML (``libnvidia-ml.so.1``, binding nvidia-ml-py), or through DCGM (``libdcgm``)."""

from __future__ import annotations

from collectors.base import Collector, Settings, Unavailable


def open_collector(settings: Settings) -> Collector:
    """Make the collector for the way that is asked for; nothing is touched before ``discover``.

    Raises Unavailable where NVML is asked for and the binding is missing.
    """
    if settings.source == "nvml":
        return open_nvml(settings)
    if settings.source == "dcgm":
        from collectors.nvidia.dcgm.collector import DcgmCollector

        return DcgmCollector(settings)
    from collectors.nvidia.ways import BestWay

    return BestWay(settings)


def open_nvml(settings: Settings) -> Collector:
    """The collector over NVML. Raises Unavailable without the binding."""
    try:
        import pynvml  # noqa: F401
    except ImportError:
        hint = "the Python binding is missing: pip install nvidia-ml-py (the extra nvidia)"
        raise Unavailable("no_library", hint) from None
    from collectors.nvidia.nvml import NvmlCollector

    return NvmlCollector(settings)
