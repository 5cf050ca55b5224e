"""A vendor's tables: what they can say (model.py), and what loads and checks them (load.py)."""

from exporter.catalogue.load import CatalogueError, load
from exporter.catalogue.model import (
    Bridge,
    Catalogue,
    Collector,
    Detect,
    DoctorCheck,
    FaultClass,
    Feed,
    HealthRule,
    Option,
    PciRule,
    Series,
)

__all__ = [
    "Bridge",
    "Catalogue",
    "CatalogueError",
    "Collector",
    "Detect",
    "DoctorCheck",
    "FaultClass",
    "Feed",
    "HealthRule",
    "Option",
    "PciRule",
    "Series",
    "load",
]
