"""Files that others put there."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from exporter.attribution.setup import build
from exporter.config import Config
from exporter.config.attribution import Attribution, KubernetesAttribution, SlurmAttribution
from exporter.files import MAX_TEXT, beginning, is_folder, is_there, small_text

HIDDEN = "/" + 300 * "x" + "/kubelet.sock"
"""What the kernel refuses to look for: like a directory that only root may enter, it is no 'no such file'."""


def test_what_may_not_be_looked_at_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert [is_there(path) for path in (HIDDEN, "/\0", "", tmp_path / "file")] == [False, False, False, True]
    assert [is_folder(path) for path in (HIDDEN, tmp_path / "file", tmp_path)] == [False, False, True]
    assert [small_text(path) for path in (HIDDEN, "", "/\0", tmp_path)] == ["", "", "", ""]


def test_a_pipe_holds_nobody_up_and_a_file_without_end_is_read_in_part(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert small_text(tmp_path / "pipe") == ""
    assert len(small_text("/dev/zero")) == MAX_TEXT
    (tmp_path / "token").write_text(" abc\n")
    assert small_text(tmp_path / "token") == "abc"
    (tmp_path / "garbage").write_bytes(b"\xff\xfe")
    assert small_text(tmp_path / "garbage") == ""


def test_an_agent_that_may_not_see_the_kubelets_directory_starts_without_it() -> None:
    kubernetes = KubernetesAttribution(pod_resources_socket=HIDDEN, token_file=HIDDEN)
    attribution = Attribution(kubernetes=kubernetes, slurm=SlurmAttribution(job_directories=(HIDDEN,)))
    parts = build(
        msgspec.structs.replace(Config(), attribution=attribution),
        [],
        changed=lambda: None,
        failed=lambda source, kind: None,
        running=lambda: (),
        environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_NAME": "me"},
    )
    # These two say nothing before they are told of a job or an owner.
    assert [(source.name, getattr(source, "awake", True)) for source in parts.sources] == [
        ("processes", False),
        ("bridge", False),
    ]


def test_only_the_beginning_of_a_regular_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("abcdef")
    os.utime(file, (5, 7))
    assert beginning(file, 4) == (b"abcd", 7.0)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    assert [beginning(tmp_path / name, 4) for name in ("pipe", "zero", ".")] == [None, None, None]
    with pytest.raises(FileNotFoundError):
        beginning(tmp_path / "none", 4)


def test_a_file_that_becomes_a_pipe_between_two_looks_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("abc")
    looked = Path.stat

    def swapped(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        found = looked(path, follow_symlinks=follow_symlinks)
        file.unlink()
        os.mkfifo(file)
        return found

    monkeypatch.setattr(Path, "stat", swapped)
    assert beginning(file, 4) is None
