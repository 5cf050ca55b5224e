"""The one container image of the tests: busybox and nothing else, made by hand, as no registry is reached."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Final

NAME: Final = "test.invalid/busybox:1"
APPLETS: Final = ("sh", "sleep", "dd")
WAIT: Final = "trap 'exit 0' TERM; sleep 1000000 & wait"
"""A command that runs until it is told to end, and then ends well."""


def write(busybox: Path, archive: Path) -> None:
    """An archive as ``docker save`` makes it. The image's own command only waits: sandboxes run it, too."""
    layer = _layer(busybox.read_bytes())
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": ["/bin/sh", "-c", WAIT], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [NAME], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        _add(tar, "config.json", json.dumps(config).encode())
        _add(tar, "layer.tar", layer)
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def _layer(busybox: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        _add(tar, "bin/busybox", busybox, 0o755)
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
