"""The configuration: a typed model (model.py and its parts) and what fills, checks and explains it."""

from exporter.config.collectors import BRIDGED, SOURCES, CollectorConfig, RawChoice
from exporter.config.model import DEFAULT_PORT, Admin, Config, DeviceClass, Http, Intervals
from exporter.config.paths import Paths, expand
from exporter.config.problems import ConfigError, Problem

__all__ = [
    "BRIDGED",
    "DEFAULT_PORT",
    "SOURCES",
    "Admin",
    "CollectorConfig",
    "Config",
    "ConfigError",
    "DeviceClass",
    "Http",
    "Intervals",
    "Paths",
    "Problem",
    "RawChoice",
    "expand",
]
