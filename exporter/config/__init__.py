"""The configuration: a typed model (model.py, attribution.py) and what fills, checks and explains it."""

from exporter.config.model import (
    BRIDGED,
    DEFAULT_PORT,
    SOURCES,
    Admin,
    CollectorConfig,
    Config,
    DeviceClass,
    Http,
    Intervals,
    Paths,
    RawChoice,
    expand,
)
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
