"""accel-exporter: normalized telemetry of every accelerator of a node."""

__version__ = "0.1.0"
