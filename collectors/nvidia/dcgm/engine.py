"""A connection to an engine: nv-hostengine by socket or port, or one that runs in this process."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import struct
import threading
from collections.abc import Callable
from typing import Any, Final

import msgspec

from collectors.base import Settings, Unavailable
from collectors.nvidia.dcgm import abi, codes
from collectors.nvidia.dcgm.address import Address, candidates, reachable
from collectors.nvidia.dcgm.codes import DcgmFailure
from collectors.nvidia.dcgm.library import NAMES, Library, Version, understands

_LOGIN_MS: Final = 2000
"""For the library's own connection; it tries again until then."""
_PATIENCE: Final = 5.0
"""Seconds for login and versions together. A remote request gives up after 60 by itself: too long to start with."""
_AUTO: Final = 1
"""Mode of an engine in this process: it samples by itself."""
_SILENT: Final = 0
"""Severity: no log. The engine's default is a file that may not be ours."""
_INSTALL: Final = "install datacenter-gpu-manager-4-core, or set source: nvml"


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """An open connection."""

    library: Library
    handle: int
    where: str
    embedded: bool = False
    version: Version = ()
    """Of the engine; empty where it does not tell."""

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that takes the connection first. Raises DcgmFailure."""
        self.library.call(name, self.handle, *arguments)

    def close(self) -> None:
        """Let go. Never fails: what an engine keeps of a lost connection it removes itself."""
        with contextlib.suppress(DcgmFailure):
            self.call("dcgmStopEmbedded" if self.embedded else "dcgmDisconnect")
        with contextlib.suppress(DcgmFailure):
            self.library.call("dcgmShutdown")


def connect(settings: Settings) -> Engine:
    """Connect to nv-hostengine, or start an engine in this process where the options allow it.

    Raises Unavailable: nothing listens, no library, or one that the engine does not understand.
    """
    address = reachable(settings.options)
    if address is not None:
        return _remote(address)
    if settings.options.get("dcgm_embedded", False):
        return _embedded()
    places = " and ".join(map(str, candidates(settings.options)))
    hint = f"nv-hostengine does not listen at {places}: start it, set dcgm_address, or set source: nvml"
    raise Unavailable("no_driver", hint)


def _remote(address: Address) -> Engine:
    """The newest library that the engine understands."""
    newer: list[str] = []
    found = False
    for name in NAMES:
        try:
            library = Library(name, everywhere=False)
        except OSError:
            continue
        found = True
        engine = _bounded(functools.partial(_login, library, address), f"nv-hostengine at {address}")
        if understands(own := library.version(), engine.version):
            return engine
        newer.append(f"{name} is of DCGM {_dotted(own)}, nv-hostengine at {address} of {_dotted(engine.version)}")
        engine.close()
    if not found:
        raise Unavailable("no_library", f"nv-hostengine listens at {address}, but libdcgm is not found: {_INSTALL}")
    hint = f"{'; '.join(newer)}: the engine must not be older: update it, install its library, or set source: nvml"
    raise Unavailable("version_mismatch", hint)


def _bounded(login: Callable[[], Engine], what: str) -> Engine:
    """Do it in a thread that may be left behind: no call to an engine has a deadline that we can set."""
    lock = threading.Lock()
    results: list[Engine | DcgmFailure] = []
    late = False

    def run() -> None:
        result: Engine | DcgmFailure
        try:
            result = login()
        except DcgmFailure as failure:
            result = failure
        with lock:
            results.append(result)
            unwanted = late
        if unwanted and isinstance(result, Engine):
            result.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    with lock:
        result = results[0] if results else None
        late = result is None
    if isinstance(result, Engine):
        return result
    reason = f"within {_PATIENCE:g} s" if result is None else f"as it should: {result}"
    raise Unavailable("no_driver", f"{what} does not answer {reason}; see its log, or set source: nvml")


def _login(library: Library, address: Address) -> Engine:
    """Raises DcgmFailure. The version is asked for at once: a refused login may come back as success."""
    library.call("dcgmInit")
    handle = ctypes.c_size_t(0)
    if address.kind == "vsock":
        parameters = abi.structure(abi.CONNECT_URI)
        struct.pack_into("=II", parameters, 4, 0, _LOGIN_MS)
        library.call("dcgmConnect_v3", str(address).encode(), parameters, ctypes.byref(handle))
    else:
        parameters = abi.structure(abi.CONNECT)
        struct.pack_into("=III", parameters, 4, 0, _LOGIN_MS, address.kind == "unix")
        library.call("dcgmConnect_v2", str(address).encode(), parameters, ctypes.byref(handle))
    version = library.engine_version(handle.value)
    return Engine(library=library, handle=handle.value, where=str(address), version=version)


def _embedded() -> Engine:
    for name in NAMES:
        try:
            library = Library(name, everywhere=True)
        except OSError:
            continue
        try:
            return _start(library)
        except DcgmFailure as failure:
            raise Unavailable("no_driver", f"DCGM does not start in this process: {failure}") from None
    raise Unavailable("no_library", f"libdcgm is not found: {_INSTALL}")


def _start(library: Library) -> Engine:
    """One engine a process: a second start succeeds without giving its handle."""
    library.call("dcgmInit")
    log = ctypes.c_char_p(b"/dev/null")
    parameters = abi.structure(abi.EMBEDDED)
    address = ctypes.cast(log, ctypes.c_void_p).value or 0
    struct.pack_into("=iQQi", parameters, 4, _AUTO, 0, address, _SILENT)
    try:
        library.call("dcgmStartEmbedded_v2", parameters)
        handle: int = struct.unpack_from("=Q", parameters, 8)[0]
    except DcgmFailure as failure:
        if failure.code not in (codes.VERSION_MISMATCH, codes.FUNCTION_NOT_FOUND):
            raise
        out = ctypes.c_size_t(0)
        library.call("dcgmStartEmbedded", _AUTO, ctypes.byref(out))
        handle = out.value
    if not handle:
        raise DcgmFailure(codes.GENERIC, "dcgmStartEmbedded_v2")
    return Engine(library=library, handle=handle, where="this process", embedded=True, version=library.version())


def _dotted(version: Version) -> str:
    return ".".join(map(str, version)) or "unknown version"
