"""How a gRPC call ends: its codes, and its answer as it arrives. The connection is that of ``collectors.unary``."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, Literal, get_args
from urllib.parse import unquote

import h2.errors

Code = Literal[
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
]
CODES: Final[tuple[Code, ...]] = get_args(Code)
"""By number."""

_HTTP_CODES: Final[dict[int, Code]] = {
    400: "INTERNAL",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "UNIMPLEMENTED",
    429: "UNAVAILABLE",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "UNAVAILABLE",
}
_RESET_CODES: Final[dict[int, Code]] = {
    h2.errors.ErrorCodes.REFUSED_STREAM: "UNAVAILABLE",
    h2.errors.ErrorCodes.CANCEL: "CANCELLED",
    h2.errors.ErrorCodes.ENHANCE_YOUR_CALM: "RESOURCE_EXHAUSTED",
    h2.errors.ErrorCodes.INADEQUATE_SECURITY: "PERMISSION_DENIED",
}

PREFIX: Final = struct.Struct(">BI")
"""What stands before each message: whether it is compressed, and its bytes."""
_MAX_DETAIL: Final = 300


class RpcError(Exception):
    """A call failed; ``code`` is gRPC's word for it. ``absent``: nobody listens at the address."""

    def __init__(self, code: Code, detail: str, *, absent: bool = False) -> None:
        super().__init__(f"{code}: {detail}")
        self.code: Code = code
        self.detail = detail
        self.absent = absent


class Answer:
    """What has come of one call. ``server`` is named in errors; ``most``: bytes that the message may have."""

    def __init__(self, server: str, most: int) -> None:
        self.ended = False
        self.error: RpcError | None = None
        self._server, self._most = server, most
        self._body = bytearray()
        self._size: int | None = None
        """Bytes of the message, when its prefix has come."""
        self._status = 0
        self._headers: dict[str, str] = {}

    @property
    def over(self) -> bool:
        """Nothing more will come of it."""
        return self.ended or self.error is not None

    def take_headers(self, headers: Iterable[tuple[bytes | str, bytes | str]]) -> None:
        """Those at the beginning, and the trailers."""
        for name, value in headers:
            self._headers[_ascii(name)] = _ascii(value)
        status = self._headers.get(":status", "")
        self._status = int(status) if status.isdecimal() and len(status) == 3 else 0

    def take_data(self, data: bytes) -> bool:
        """False: with this the call has failed, and no more is wanted."""
        if self.error is not None or self._status != 200:
            return True
        self._body += data
        if self._size is None and len(self._body) >= PREFIX.size:
            compressed, self._size = PREFIX.unpack_from(self._body)
            if compressed:
                self.error = RpcError("INTERNAL", f"{self._server} compressed its answer, which was not allowed")
        if (self._size or 0) > self._most:
            self.error = RpcError("RESOURCE_EXHAUSTED", f"{self._server} answers with more than {self._most} bytes")
        elif self._size is not None and len(self._body) > self._size + PREFIX.size:
            self.error = RpcError("INTERNAL", f"{self._server} gives more than one answer")
        if self.error is not None:
            self._body.clear()
        return self.error is None

    def take_reset(self, code: int) -> None:
        """The server has cancelled the call, or all of it but what it had said."""
        if "grpc-status" in self._headers:
            self.ended = True
        else:
            self.error = RpcError(_RESET_CODES.get(code, "INTERNAL"), f"{self._server} cancelled the call")

    def message(self) -> bytes:
        """Of a call that is over. Raises RpcError."""
        if self.error is not None:
            raise self.error
        told = self._headers.get("grpc-status", "")
        if told != "0":
            raise self._failure(told)
        if self._size is None or len(self._body) != self._size + PREFIX.size:
            raise RpcError("INTERNAL", f"{self._server} broke off within its answer")
        return bytes(memoryview(self._body)[PREFIX.size :])

    def _failure(self, told: str) -> RpcError:
        detail = unquote(self._headers.get("grpc-message", ""), errors="replace")[:_MAX_DETAIL]
        if told.isdecimal() and 0 < int(told[:3]) < len(CODES):
            return RpcError(CODES[int(told[:3])], f"{self._server}: {detail or 'no reason given'}")
        if self._status != 200:
            code = _HTTP_CODES.get(self._status, "UNKNOWN")
            return RpcError(code, f"{self._server} answers with HTTP status {self._status}")
        return RpcError("UNKNOWN", f"{self._server} gives no status of the call")


def _ascii(value: bytes | str) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value
