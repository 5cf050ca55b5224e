"""The one place where libdcgm is loaded and called: a bad return code becomes DcgmFailure."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from collectors.nvidia.dcgm import abi, codes
from collectors.nvidia.dcgm.codes import DcgmFailure

NAMES: Final = ("libdcgm.so.4", "libdcgm.so.3")
"""The newest first."""

# Handles, groups and field groups are of the size of a pointer and passed by value: ctypes' default would cut them.
_H: Final = ctypes.c_size_t
_P: Final = ctypes.c_void_p
_I: Final = ctypes.c_int
_U: Final = ctypes.c_uint
_TEXT: Final = ctypes.c_char_p
_ARGUMENTS: Final[dict[str, tuple[Any, ...]]] = {
    "dcgmInit": (),
    "dcgmShutdown": (),
    "dcgmConnect_v2": (_TEXT, _P, _P),
    "dcgmConnect_v3": (_TEXT, _P, _P),
    "dcgmDisconnect": (_H,),
    "dcgmStartEmbedded": (_I, _P),
    "dcgmStartEmbedded_v2": (_P,),
    "dcgmStopEmbedded": (_H,),
    "dcgmVersionInfo": (_P,),
    "dcgmHostengineVersionInfo": (_H, _P),
    "dcgmGetAllDevices": (_H, _P, _P),
    "dcgmGetEntityGroupEntities": (_H, _I, _P, _P, _U),
    "dcgmGetDeviceAttributes": (_H, _U, _P),
    "dcgmGetGpuInstanceHierarchy": (_H, _P),
    "dcgmGetNvLinkLinkStatus": (_H, _P),
    "dcgmGetCpuHierarchy": (_H, _P),
    "dcgmGroupCreate": (_H, _I, _TEXT, _P),
    "dcgmGroupAddEntity": (_H, _H, _I, _U),
    "dcgmGroupDestroy": (_H, _H),
    "dcgmFieldGroupCreate": (_H, _I, _P, _TEXT, _P),
    "dcgmFieldGroupDestroy": (_H, _H),
    "dcgmWatchFields": (_H, _H, _H, ctypes.c_longlong, ctypes.c_double, _I),
    "dcgmUnwatchFields": (_H, _H, _H),
    "dcgmUpdateAllFields": (_H, _I),
    "dcgmEntitiesGetLatestValues": (_H, _P, _U, _P, _U, _U, _P),
    "dcgmGetValuesSince_v2": (_H, _H, _H, ctypes.c_longlong, _P, abi.Past, _P),
    "dcgmHealthSet": (_H, _H, _U),
    "dcgmHealthCheck": (_H, _H, _P),
    "dcgmProfGetSupportedMetricGroups": (_H, _P),
    "DcgmFieldsInit": (),
}
_META: Final = struct.Struct("=HBB48sii i")
"""dcgm_field_meta_t: id, type, size, tag, scope, NVML's field, entity level."""

Version = tuple[int, ...]


class Meta(msgspec.Struct, frozen=True):
    """What the library knows of a field."""

    level: int
    """The entity group at which it exists."""


class Library:
    """A loaded libdcgm."""

    __slots__ = ("_library", "name")

    def __init__(self, name: str, *, everywhere: bool) -> None:
        """``everywhere``: an engine in this process loads modules that look for the library's symbols.

        Raises OSError where the library is not found.
        """
        self.name = name
        self._library = ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL if everywhere else ctypes.RTLD_LOCAL)

    @property
    def major(self) -> int:
        """3 or 4: which sizes some structures have."""
        return int(self.name.rsplit(".", 1)[1])

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises DcgmFailure, with -20 where this version has none of that name."""
        function = getattr(self._library, name, None)
        if function is None:
            raise DcgmFailure(codes.FUNCTION_NOT_FOUND, name)
        function.argtypes = _ARGUMENTS[name]
        function.restype = ctypes.c_int
        code = function(*arguments)
        if code != codes.OK:
            raise DcgmFailure(code, name)

    def has(self, name: str) -> bool:
        """Whether this version has a function."""
        return hasattr(self._library, name)

    def version(self) -> Version:
        """The library's own version; empty where it does not tell."""
        return _version(lambda info: self.call("dcgmVersionInfo", info))

    def engine_version(self, handle: int) -> Version:
        """The version of the engine behind a connection; empty where it does not tell. Raises DcgmFailure."""
        return _version(lambda info: self.call("dcgmHostengineVersionInfo", handle, info))

    def meta(self, field: int) -> Meta | None:
        """None for a field that this version does not know."""
        function = self._library.DcgmFieldGetById
        function.argtypes, function.restype = (ctypes.c_ushort,), ctypes.c_void_p
        address = function(field)
        if not address:
            return None
        return Meta(_META.unpack(ctypes.string_at(address, _META.size))[-1])


def _version(ask: Any) -> Version:
    info = abi.structure(abi.VERSION_INFO)
    ask(info)
    return parse_version(abi.text(info, 4, 512))


def parse_version(text: str) -> Version:
    """The numbers of ``version:4.5.3;arch:…``; empty where that key is absent or no number."""
    pairs = dict(part.partition(":")[::2] for part in text.split(";"))
    numbers = pairs.get("version", "").split(".")
    return tuple(int(number) for number in numbers) if all(number.isdigit() for number in numbers) else ()


def understands(library: Version, engine: Version) -> bool:
    """Whether an engine knows the requests of a library: the library does not step down to an older engine's.

    They changed with 4.0 and with 4.6, and an engine takes all older ones. What is not told is taken as good: the
    first read will say.
    """
    return not library or not engine or _requests(library) <= _requests(engine)


def _requests(version: Version) -> int:
    return sum(version >= since for since in ((4, 0), (4, 6)))


def entities(pairs: Sequence[abi.Entity]) -> ctypes.Array[Any]:
    """An array of dcgmGroupEntityPair_t."""
    array = (ctypes.c_uint * (2 * len(pairs)))()
    for place, (group, entity) in enumerate(pairs):
        array[2 * place], array[2 * place + 1] = group, entity
    return array


def shorts(numbers: Sequence[int]) -> ctypes.Array[Any]:
    """An array of field ids."""
    return (ctypes.c_ushort * len(numbers))(*numbers)
