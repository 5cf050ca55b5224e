"""What receivers answer."""

from __future__ import annotations

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse


def partial(rejected: int, message: str = "") -> bytes:
    """An answer that some points were rejected."""
    response = ExportMetricsServiceResponse()
    response.partial_success.rejected_data_points = rejected
    response.partial_success.error_message = message
    return bytes(response.SerializeToString())


def status(message: str) -> bytes:
    """A Status, as the body of a failure: code = 1, message = 2."""
    text = message.encode()
    return b"\x08\x03\x12" + bytes((len(text),)) + text
