"""OTLP over gRPC against a server of grpcio with the generated service of opentelemetry-proto."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import any_pb2, duration_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as pb
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as service

from benchmarks.pipeline import Node
from exporter.config.otlp import OtlpEndpoint
from exporter.otlp.answer import Outcome
from exporter.otlp.grpc import GrpcSender
from tests.otlp import points
from tests.otlp_rig import Rig
from tests.otlp_servers import Certificates
from tests.serving import run

Answer = Callable[[grpc.ServicerContext], pb.ExportMetricsServiceResponse]


def taken(context: grpc.ServicerContext) -> pb.ExportMetricsServiceResponse:
    return pb.ExportMetricsServiceResponse()


@dataclass
class Server:
    target: str = ""
    requests: list[pb.ExportMetricsServiceRequest] = field(default_factory=list)
    metadata: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def receiver(
    answer: Answer = taken, address: str = "127.0.0.1:0", credentials: grpc.ServerCredentials | None = None
) -> Iterator[Server]:
    found = Server()

    class Metrics(service.MetricsServiceServicer):
        def Export(self, request: Any, context: grpc.ServicerContext) -> pb.ExportMetricsServiceResponse:
            found.requests.append(request)
            found.metadata.append(dict(context.invocation_metadata()))
            return answer(context)

    pool = futures.ThreadPoolExecutor(2)
    server = grpc.server(pool, options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 4 << 20)])
    service.add_MetricsServiceServicer_to_server(Metrics(), server)  # type: ignore[no-untyped-call]
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    server.start()
    found.target = address if address.startswith("unix:") else f"127.0.0.1:{port}"
    try:
        yield found
    finally:
        server.stop(None).wait()
        pool.shutdown()


def to(server: Server, **settings: Any) -> OtlpEndpoint:
    return OtlpEndpoint(
        **{"endpoint": server.target, "protocol": "grpc", "insecure": True, "timeout": 10.0, **settings}
    )


async def sent(endpoint: OtlpEndpoint, body: bytes = b"") -> Outcome:
    sender = GrpcSender(endpoint)
    try:
        return await sender.send(sender.pack(body))
    finally:
        await sender.close()


def test_a_publication_arrives_as_it_was_encoded() -> None:
    rig = Rig()
    expected = rig.export(Node(2).publish())
    (request,) = rig.requests
    for compression in ("gzip", "none"):
        with receiver() as server:
            assert run(lambda: sent(to(server, compression=compression), request.body)) == Outcome("success")  # noqa: B023
        assert points([server.requests[0].SerializeToString()]) == expected
        assert server.metadata[0]["user-agent"].startswith("accel-exporter/")


def test_headers_are_metadata_and_read_from_their_file_each_time(tmp_path: Path) -> None:
    file = tmp_path / "headers"

    async def test(endpoint: OtlpEndpoint) -> None:
        sender = GrpcSender(endpoint)
        for secret in ("old", "new"):
            file.write_text(f"Authorization: Bearer {secret}\n")
            assert (await sender.send(b"")).result == "success"
        await sender.close()

    with receiver() as server:
        run(lambda: test(to(server, headers={"X-Team": "gpu"}, headers_file=str(file))))
    assert [found["authorization"] for found in server.metadata] == ["Bearer old", "Bearer new"]
    assert server.metadata[0]["x-team"] == "gpu"


def retry_info(seconds: int) -> bytes:
    """Status details with a RetryInfo: its delay = 1; in a Status: code = 1, details = 3."""
    delay = duration_pb2.Duration(seconds=seconds).SerializeToString()
    info = b"\x0a" + bytes((len(delay),)) + delay
    packed = any_pb2.Any(type_url="type.googleapis.com/google.rpc.RetryInfo", value=info).SerializeToString()
    return b"\x08\x08\x1a" + bytes((len(packed),)) + packed


CODES = grpc.StatusCode
TABLE = {
    CODES.CANCELLED: "retry",
    CODES.UNKNOWN: "refused",
    CODES.INVALID_ARGUMENT: "refused",
    CODES.DEADLINE_EXCEEDED: "retry",
    CODES.NOT_FOUND: "refused",
    CODES.ALREADY_EXISTS: "refused",
    CODES.PERMISSION_DENIED: "refused",
    CODES.RESOURCE_EXHAUSTED: "refused",
    CODES.FAILED_PRECONDITION: "refused",
    CODES.ABORTED: "retry",
    CODES.OUT_OF_RANGE: "retry",
    CODES.UNIMPLEMENTED: "refused",
    CODES.INTERNAL: "refused",
    CODES.UNAVAILABLE: "retry",
    CODES.DATA_LOSS: "retry",
    CODES.UNAUTHENTICATED: "refused",
}


def failing(code: grpc.StatusCode, details: bytes = b"") -> Answer:
    def answer(context: grpc.ServicerContext) -> pb.ExportMetricsServiceResponse:
        if details:
            context.set_trailing_metadata((("grpc-status-details-bin", details),))
        context.abort(code, "because\nof this")
        raise AssertionError("abort raises")

    return answer


def test_the_table_has_every_code_but_that_of_success() -> None:
    assert set(TABLE) == set(CODES) - {CODES.OK}


@pytest.mark.parametrize("code", TABLE, ids=lambda code: code.name)
def test_the_code_says_whether_it_is_sent_again(code: grpc.StatusCode) -> None:
    with receiver(failing(code)) as server:
        outcome = run(lambda: sent(to(server)))
    assert (outcome.result, outcome.pause) == (TABLE[code], None)
    assert code.name in outcome.message
    assert "because of this" in outcome.message


@pytest.mark.parametrize(
    ("code", "result"),
    [(CODES.RESOURCE_EXHAUSTED, "retry"), (CODES.UNAVAILABLE, "retry"), (CODES.INVALID_ARGUMENT, "refused")],
    ids=lambda value: getattr(value, "name", value),
)
def test_retry_info_says_how_long_to_wait(code: grpc.StatusCode, result: str) -> None:
    with receiver(failing(code, retry_info(7))) as server:
        outcome = run(lambda: sent(to(server)))
    assert outcome.result == result
    assert result == "refused" or outcome.pause == 7.0


def test_points_that_were_rejected_are_counted() -> None:
    def answer(context: grpc.ServicerContext) -> pb.ExportMetricsServiceResponse:
        response = pb.ExportMetricsServiceResponse()
        response.partial_success.rejected_data_points = 9
        response.partial_success.error_message = "too old"
        return response

    with receiver(answer) as server:
        outcome = run(lambda: sent(to(server)))
    assert (outcome.result, outcome.rejected) == ("partial", 9)


def test_a_slow_receiver_ends_with_the_timeout() -> None:
    def answer(context: grpc.ServicerContext) -> pb.ExportMetricsServiceResponse:
        end = time.monotonic() + 20
        while context.is_active() and time.monotonic() < end:
            time.sleep(0.02)
        return pb.ExportMetricsServiceResponse()

    began = time.monotonic()
    with receiver(answer) as server:
        assert run(lambda: sent(to(server, timeout=0.5))).result == "retry"
    assert time.monotonic() - began < 10


def test_nobody_listens() -> None:
    with receiver() as server:
        gone = to(server)
    assert run(lambda: sent(gone)).result == "retry"


def test_a_request_that_is_too_large_for_the_receiver_is_refused() -> None:
    body = b"\x0a\x00" * (3 << 20)
    with receiver() as server:
        assert run(lambda: sent(to(server), body)).result == "refused"


def test_a_unix_socket_is_an_address(tmp_path: Path) -> None:
    with receiver(address=f"unix:{tmp_path}/otlp.sock") as server:
        assert run(lambda: sent(to(server))).result == "success"


def test_tls_and_the_agents_own_certificate(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    certificate, key = certificates.client()
    issued = certificates.authority.issue_cert("127.0.0.1")
    credentials = grpc.ssl_server_credentials(
        [(issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes())],
        root_certificates=certificates.trusted.read_bytes(),
        require_client_auth=True,
    )
    with receiver(credentials=credentials) as server:
        known = {"insecure": False, "certificate": str(certificates.trusted), "timeout": 5.0}
        mine = {"client_certificate": str(certificate), "client_key": str(key)}
        assert run(lambda: sent(to(server, **known, **mine))).result == "success"
        assert run(lambda: sent(to(server, **{**known, "timeout": 1.0}))).result != "success"
        assert run(lambda: sent(to(server, insecure=False, timeout=1.0, **mine))).result != "success"
    assert len(server.requests) == 1


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    endpoint = OtlpEndpoint(endpoint="https://127.0.0.1:1", protocol="grpc", certificate=str(tmp_path / "ca.pem"))
    outcome = run(lambda: sent(endpoint))
    assert outcome.result == "retry"
    assert "ca.pem" in outcome.message
