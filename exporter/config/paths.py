"""The part of the configuration that says where the host's files are, and what fills placeholders in paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from collectors.base import HostPaths
from exporter.config import checks
from exporter.config.checks import checked, keys_are_collectors


class Paths(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the host's files are: a container mounts them elsewhere. Paths may refer to others, as the defaults do."""

    root: Annotated[
        str,
        checked(checks.PATH_OR_EMPTY),
        Meta(description="Where the host's root directory is mounted; moves all paths below that begin with `{root}`."),
    ] = ""
    proc: Annotated[str, checked(checks.ROOTED_PATH), Meta(description="The host's procfs.")] = "{root}/proc"
    sys: Annotated[str, checked(checks.ROOTED_PATH), Meta(description="The host's sysfs.")] = "{root}/sys"
    dev: Annotated[str, checked(checks.ROOTED_PATH), Meta(description="The host's device files.")] = "{root}/dev"
    kmsg: Annotated[str, checked(checks.DEVICE_PATH), Meta(description="The kernel's log.")] = "{dev}/kmsg"
    run: Annotated[str, checked(checks.ROOTED_PATH), Meta(description="The host's `/run`.")] = "{root}/run"
    var_lib: Annotated[str, checked(checks.ROOTED_PATH), Meta(description="The host's `/var/lib`.")] = "{root}/var/lib"
    etc: Annotated[str, checked(checks.ROOTED_PATH), Meta(description="The host's `/etc`.")] = "{root}/etc"
    opt: Annotated[str, checked(checks.ROOTED_PATH), Meta(description="The host's `/opt`.")] = "{root}/opt"
    libraries: Annotated[
        Mapping[str, Annotated[str, checked(checks.SEARCH_PATH)]],
        keys_are_collectors(
            "Directories in which a collector's libraries are looked for first, by collector (as in `LD_LIBRARY_PATH`)."
        ),
    ] = {}

    @property
    def host(self) -> HostPaths:
        """The host's directories, without placeholders."""
        found = {"root": self.root.rstrip("/")}
        for name in ("proc", "sys", "dev", "run", "var_lib", "etc", "opt", "kmsg"):
            found[name] = _fill(getattr(self, name), found)
        return HostPaths(**{name: path for name, path in found.items() if name != "root"})

    def resolve(self, template: str) -> str:
        """A path of this section without placeholders."""
        return expand(template.replace("{root}", self.root.rstrip("/")), self.host)


def expand(template: str, paths: HostPaths) -> str:
    """Put the host's directories into a path such as ``{proc}/driver/x``. Raises ValueError for another placeholder."""
    return _fill(template, {name: getattr(paths, name) for name in checks.HOST_PLACEHOLDERS})


def _fill(template: str, known: Mapping[str, str]) -> str:
    for name in checks.PLACEHOLDER.findall(template):
        if name not in known:
            words = ", ".join(f"{{{each}}}" for each in known)
            raise ValueError(f"{template!r}: there is no placeholder {{{name}}}; expected one of {words}")
    return checks.PLACEHOLDER.sub(lambda match: known[match[1]], template)
