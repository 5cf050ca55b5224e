"""Finds AMD's Python package amdsmi and tells whether it fits the library that it loads.

The package is an image of one version of the library's header: another version's structures differ in size, and the
library writes beyond them. So the two are compared before anything else is called.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from collectors.base import Settings

PACKAGE: Final = "amdsmi"
_LIBRARY: Final = re.compile(r"libamd_smi[\w.]*\.so[\w.]*$")

Trouble = Literal["no_library", "version_mismatch"]

# Sizes of amdsmi_gpu_metrics_t and amdsmi_power_info_t → the library's major version.
_MAJORS: Final[Mapping[tuple[int, int], int]] = {
    (424, 68): 24,
    (1832, 68): 24,
    (2368, 40): 25,
    (4544, 192): 26,
}
_PROBED: Final = 1 << 16
"""Bytes that a structure is given when the library is asked how much it writes; far more than any has."""


class LoadError(Exception):
    """The package cannot be used. The text says why, for a person."""

    def __init__(self, state: Trouble, detail: str) -> None:
        super().__init__(detail)
        self.state: Trouble = state


class Place(msgspec.Struct, frozen=True):
    """Where a package may be."""

    folder: str
    """To be put in front of the search path; empty: where Python looks anyway."""
    root: str = ""
    """The ROCm that it belongs to."""


def places(settings: Settings) -> list[Place]:
    """Where to look, in order: ROCm's own package fits its library best."""
    chosen = str(settings.options.get("rocm_path", ""))
    roots = [Path(chosen)] if chosen else []
    if not chosen:
        told = os.environ.get("ROCM_HOME") or os.environ.get("ROCM_PATH")
        roots += [Path(told)] if told else []
        opt = Path(settings.paths.opt)
        with contextlib.suppress(OSError):
            roots += [opt / "rocm", *sorted(opt.glob("rocm-*"), key=_version, reverse=True)]
    found: list[Place] = []
    for root in roots:
        folder = root / "share/amd_smi"
        if (folder / PACKAGE / "__init__.py").is_file():
            found.append(Place(str(folder), str(root)))
    if importlib.util.find_spec(PACKAGE) is not None:
        found.append(Place("", chosen))
    return list(dict.fromkeys(found))


def _version(path: Path) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", path.name))


def load(place: Place) -> Any:
    """Import the package. Raises LoadError; what else it raises or prints in search of its library stays in here."""
    if place.root:
        os.environ["ROCM_PATH"] = os.environ["ROCM_HOME"] = place.root
    # A lock of our own: a crashed user of the shared one would block us for ever.
    os.environ.setdefault("RSMI_MUTEX_THREAD_ONLY", "1")
    said = io.StringIO()
    with _search(place.folder), contextlib.redirect_stdout(said):
        try:
            return _import()
        except ModuleNotFoundError as error:
            _forget()
            raise LoadError("no_library", f"the Python package {error.name} is not installed") from None
        except AttributeError as error:
            _forget()
            raise LoadError("version_mismatch", f"amdsmi of another ROCm than the library: {error}") from None
        except Exception as error:  # noqa: BLE001 - KeyError, OSError and others, by version
            _forget()
            words = " ".join(said.getvalue().split()) or f"{type(error).__name__}: {error}"
            raise LoadError("no_library", f"libamd_smi.so is not found: {words}"[:500]) from None


def _import() -> Any:
    try:
        return importlib.import_module(PACKAGE)
    except KeyError as error:
        # Up to ROCm 6.1 the package takes this variable for granted.
        if error.args != ("ROCM_PATH",):
            raise
        _forget()
        os.environ["ROCM_PATH"] = "/opt/rocm"
        return importlib.import_module(PACKAGE)


@contextlib.contextmanager
def _search(folder: str) -> Iterator[None]:
    if not folder:
        yield
        return
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _forget() -> None:
    """A half-imported package would be taken for a whole one at the next try."""
    for name in [name for name in sys.modules if name == PACKAGE or name.startswith(PACKAGE + ".")]:
        del sys.modules[name]


def check_version(module: Any) -> None:
    """Compare the package's structures with the library's version. Raises LoadError. The library need not be open."""
    wrapper = module.amdsmi_interface.amdsmi_wrapper
    sizes = tuple(ctypes.sizeof(getattr(wrapper, name)) for name in ("amdsmi_gpu_metrics_t", "amdsmi_power_info_t"))
    try:
        version = module.amdsmi_get_lib_version()
    except Exception as error:  # noqa: BLE001 - the package's own exceptions have a root only in newer versions
        raise LoadError("version_mismatch", f"the library does not tell its version: {error}") from None
    told = ".".join(str(version.get(part, "?")) for part in ("major", "minor", "release"))
    expected = _MAJORS.get((sizes[0], sizes[1]))
    if expected is not None and version.get("major") != expected:
        raise LoadError(
            "version_mismatch",
            f"amdsmi ({Path(module.__file__).parent}) is made for library version {expected}, the library says {told}",
        )
    if expected is None and not _same_tree(module):
        raise LoadError(
            "version_mismatch",
            f"amdsmi ({Path(module.__file__).parent}) has structures of a version that is not known, and the library"
            f" {told} is from elsewhere: use the package of the same ROCm",
        )


def _same_tree(module: Any) -> bool:
    """Whether package and library came together: under one root, or the one inside the other."""
    package = Path(module.__file__).resolve().parent
    libraries = [path for path in _mapped() if _LIBRARY.search(path.name)]
    return bool(libraries) and all(
        path.parent == package or path.parent.parent in package.parents for path in map(Path.resolve, libraries)
    )


def _mapped() -> set[Path]:
    """The files that this process has mapped."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return set()
    return {Path(line.split(None, 5)[5]) for line in lines if line.count("/")}


def check_extents(module: Any, handle: Any) -> None:
    """See how much the library writes into the structures. Raises LoadError if it is more than they have.

    The library must be open. To be called in a process that may crash.
    """
    wrapper = module.amdsmi_interface.amdsmi_wrapper
    for function, structure in (
        ("amdsmi_get_gpu_metrics_info", "amdsmi_gpu_metrics_t"),
        ("amdsmi_get_power_info", "amdsmi_power_info_t"),
        ("amdsmi_get_gpu_asic_info", "amdsmi_asic_info_t"),
        ("amdsmi_get_gpu_board_info", "amdsmi_board_info_t"),
        ("amdsmi_get_gpu_vram_info", "amdsmi_vram_info_t"),
        ("amdsmi_get_gpu_vbios_info", "amdsmi_vbios_info_t"),
        ("amdsmi_get_gpu_driver_info", "amdsmi_driver_info_t"),
    ):
        kind = getattr(wrapper, structure, None)
        call = getattr(wrapper, function, None)
        if kind is None or call is None:
            continue
        written = max(_written(call, handle, kind, filler) for filler in (0xA5, 0x5A))
        if written > ctypes.sizeof(kind):
            raise LoadError(
                "version_mismatch",
                f"the library writes {written} bytes into {structure}, which has {ctypes.sizeof(kind)} in amdsmi",
            )


def _written(call: Any, handle: Any, kind: Any, filler: int) -> int:
    """Bytes up to the last that changed."""
    buffer = ctypes.create_string_buffer(bytes([filler]) * _PROBED, _PROBED)
    call(handle, ctypes.cast(buffer, ctypes.POINTER(kind)))
    return len(buffer.raw.rstrip(bytes([filler])))
