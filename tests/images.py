"""Builds the container image by buildah, without a daemon and without a registry.

The Dockerfile's base image is replaced by a Debian that debootstrap unpacks, once, below .make/.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
PLACE: Final = ROOT / ".make/image"
SUITE: Final = "bookworm"
PACKAGES: Final = "ca-certificates,python3,python3-pip,python3-venv"
BASE: Final = "localhost/accel-exporter-base"
BUILD_DEADLINE: Final = 900
TRUSTED: Final = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
"""Where pip finds packages, and whom it trusts: what holds for this machine has to hold in the build."""
INSTALLED: Final = "usr/local/lib/accel-exporter"
"""Where the agent is in an image."""


def needs() -> None:
    """Skip the test unless it is asked for; fail it where it is asked for and cannot run."""
    if os.environ.get("RUN_IMAGE_TESTS") != "1":
        pytest.skip("takes minutes: RUN_IMAGE_TESTS=1 runs it")
    missing = [program for program in ("buildah", "debootstrap") if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        pytest.fail(f"needs root, buildah and debootstrap; not there: {', '.join(missing) or 'root'}", pytrace=False)


class Builder:
    """buildah with a storage of its own, and the sources as they were when it was made."""

    def __init__(self, folder: Path) -> None:
        self._storage, self._context = folder / "storage", folder / "context"
        self._driver = "overlay"
        try:
            self("info")
        except AssertionError:
            # No overlays on this file system: each layer is a copy, and everything takes far longer.
            self._driver = "vfs"
        _copy_context(self._context)

    def __call__(self, *arguments: str, deadline: float = 120) -> str:
        """What it prints. Raises AssertionError with its words if it fails."""
        options = [
            "--root",
            str(self._storage / "root"),
            "--runroot",
            str(self._storage / "run"),
            "--storage-driver",
            self._driver,
        ]
        done = subprocess.run(
            ["buildah", *options, *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=deadline,
        )
        assert done.returncode == 0, f"buildah {' '.join(arguments[:2])}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stdout

    def close(self) -> None:
        """Remove all images. buildah leaves its storage mounted upon itself, so that nobody else could remove it."""
        self("rmi", "--all", "--force")
        for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
            place = line.split()[4]
            if Path(place).is_relative_to(self._storage):
                _check(["umount", "--lazy", place])

    def make_base(self) -> None:
        system = _system()
        container = self("from", "scratch").strip()
        self("copy", "--quiet", container, str(system), "/")
        self("commit", "--quiet", "--rm", container, BASE)

    def build(self, target: str, *options: str, tag: str = "") -> str:
        """The name of the image."""
        image = f"localhost/accel-exporter:{tag or target}"
        fixed = ["--isolation", "chroot", "--format", "docker", "--timestamp", "0", "--build-arg", f"BASE={BASE}"]
        self("bud", *fixed, *options, "--target", target, "--tag", image, str(self._context), deadline=BUILD_DEADLINE)
        return image

    @contextmanager
    def container(self, image: str) -> Iterator[Container]:
        """A container of the image; nothing runs in it yet."""
        name = self("from", image).strip()
        try:
            yield Container(self, name, Path(self("mount", name).strip()))
        finally:
            self("rm", name)


class Container:
    def __init__(self, builder: Builder, name: str, files: Path) -> None:
        self._builder, self._name = builder, name
        self.files = files
        """Its file system, as this machine sees it."""

    def run(self, *command: str) -> str:
        """What a command prints, run inside as the image's user."""
        return self._builder("run", "--isolation", "chroot", self._name, "--", *command)

    def digest(self, folder: str) -> str:
        """One hash over all files below a folder: names, modes, times, contents."""
        found = hashlib.sha256()
        for path in sorted((self.files / folder).rglob("*")):
            state = path.lstat()
            content = (
                str(path.readlink()).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
            )
            name = str(path.relative_to(self.files))
            found.update(f"{name} {state.st_mode} {state.st_uid} {state.st_mtime_ns} {len(content)}\n".encode())
            found.update(content)
        return found.hexdigest()


def _copy_context(place: Path) -> None:
    """What the Dockerfile copies, and itself."""
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for name in (*kept, "Dockerfile", ".dockerignore"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, place / name)


def _system() -> Path:
    """A small Debian with Python where the Dockerfile wants it."""
    ready = PLACE / SUITE
    if ready.exists():
        return ready
    PLACE.mkdir(parents=True, exist_ok=True)
    work = PLACE / f"{SUITE}.work"
    shutil.rmtree(work, ignore_errors=True)
    _check(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(work)])
    (work / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    for path in TRUSTED:
        if Path(path).exists():
            shutil.copyfile(path, work / path.lstrip("/"))
    # Packages that were unpacked are not needed any more.
    shutil.rmtree(work / "var/cache/apt/archives")
    work.rename(ready)
    return ready


def _check(command: Sequence[str]) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=BUILD_DEADLINE
    )
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
