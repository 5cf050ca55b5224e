"""What stands behind `make run`, `make test` and CI, run for real in a folder of its own."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = str(Path(sys.executable).resolve())
PIP = """
import os, pathlib, sys
with pathlib.Path(os.environ["PIP_LOG"]).open("a") as log:
    print(*sys.argv[1:], file=log)
sys.exit(int(os.environ.get("PIP_FAILS", 0)))
"""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def execute(*command: str, cwd: Path, env: Mapping[str, str] = {}) -> subprocess.CompletedProcess[str]:
    clean = {
        name: value for name, value in os.environ.items() if name not in {"VENV", "PYTHON", "REQUIRE_TEST_PROGRAMS"}
    }
    return subprocess.run(
        command,
        cwd=cwd,
        env={**clean, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


class Checkout:
    """A copy of what scripts/venv.sh looks at, with an environment whose pip only writes down what it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "pip.log"
        for name in ("scripts/venv.sh", "pyproject.toml", "requirements-dev.lock", "exporter/__init__.py"):
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / name)

    def make_environment(self) -> None:
        venv.create(self.folder / ".venv", with_pip=False)
        (library,) = (self.folder / ".venv/lib").glob("python*/site-packages")
        (library / "pip").mkdir()
        (library / "pip/__init__.py").touch()
        (library / "pip/__main__.py").write_text(PIP)

    def run(self, what: str, **env: str) -> subprocess.CompletedProcess[str]:
        return execute("scripts/venv.sh", what, cwd=self.folder, env={"PIP_LOG": str(self.log), **env})

    def installs(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_tests_install_exactly_what_is_locked_and_only_once(checkout: Checkout) -> None:
    checkout.make_environment()
    assert checkout.run("dev").returncode == 0
    locked, own = checkout.installs()
    assert "--require-hashes --requirement requirements-dev.lock" in locked
    assert "--no-deps --no-build-isolation --editable ." in own
    assert checkout.run("dev").returncode == 0
    assert len(checkout.installs()) == 2


def test_running_needs_no_more_than_what_the_tests_installed(checkout: Checkout) -> None:
    checkout.make_environment()
    checkout.run("dev")
    assert checkout.run("run").returncode == 0
    assert len(checkout.installs()) == 2


@pytest.mark.parametrize("name", ["pyproject.toml", "requirements-dev.lock", "exporter/__init__.py"])
def test_a_change_of_what_is_needed_installs_again(checkout: Checkout, name: str) -> None:
    checkout.make_environment()
    checkout.run("run")
    with (checkout.folder / name).open("a") as file:
        file.write("\n")
    checkout.run("run")
    assert len(checkout.installs()) == 2


def test_a_failed_installation_says_what_to_do_and_is_tried_again(checkout: Checkout) -> None:
    checkout.make_environment()
    failed = checkout.run("run", PIP_FAILS="1")
    assert failed.returncode == 1
    assert "Without a network: PIP_NO_INDEX=1" in failed.stderr
    assert checkout.run("run").returncode == 0
    assert len(checkout.installs()) == 2


def test_a_python_that_is_too_old_is_refused(checkout: Checkout, tmp_path: Path) -> None:
    program(tmp_path / "bin/python2", "#!/bin/sh\nexit 1\n")
    refused = checkout.run("run", PYTHON=str(tmp_path / "bin/python2"))
    assert refused.returncode == 1
    assert "is not a Python 3.11 or newer" in refused.stderr
    assert not (checkout.folder / ".venv").exists()


def test_a_missing_venv_module_is_told_with_the_package_that_has_it(checkout: Checkout, tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['ensurepip'] = None; exec(sys.argv[1])"
    program(tmp_path / "bin/python3", f'#!/bin/sh\nexec "{PYTHON}" -c "{hidden}" "$2"\n')
    failed = checkout.run("run", PYTHON=str(tmp_path / "bin/python3"))
    assert failed.returncode == 1
    assert f"apt-get install python3.{sys.version_info.minor}-venv" in failed.stderr


def test_a_folder_that_is_no_environment_is_left_alone(checkout: Checkout) -> None:
    precious = checkout.folder / ".venv/notes.txt"
    precious.parent.mkdir()
    precious.write_text("mine")
    refused = checkout.run("run")
    assert refused.returncode == 1
    assert "is no virtual environment" in refused.stderr
    assert precious.read_text() == "mine"


def test_an_environment_of_a_python_that_is_gone_is_made_anew(checkout: Checkout) -> None:
    checkout.make_environment()
    for link in (checkout.folder / ".venv/bin").glob("python*"):
        link.unlink()
    (checkout.folder / ".venv/bin/python").symlink_to(checkout.folder / "no-such-python")
    done = checkout.run("run", PIP_NO_INDEX="1", PYTHON=PYTHON)
    assert "making it anew" in done.stdout
    assert execute(str(checkout.folder / ".venv/bin/python"), "-c", "import pip", cwd=checkout.folder).returncode == 0
    # The real pip of the new environment had nothing to install from.
    assert done.returncode == 1


def bare_path(folder: Path, *extra: str) -> str:
    """A PATH with the shell's usual helpers and nothing that the tests need."""
    for name in ("bash", "env", "id", "python3", *extra):
        target = PYTHON if name == "python3" else shutil.which(name)
        assert target is not None
        (folder / "bin").mkdir(exist_ok=True)
        (folder / "bin" / name).symlink_to(target)
    return str(folder / "bin")


def test_programs_that_cannot_be_installed_are_told_and_the_tests_go_on(tmp_path: Path) -> None:
    path = bare_path(tmp_path)
    done = execute("bash", str(ROOT / "scripts/test-programs.sh"), cwd=tmp_path, env={"PATH": path})
    assert done.returncode == 0, done.stderr
    assert "Not installed: gcc libc6-dev (this system has no apt-get" in done.stderr
    assert "apt-get install prometheus" in done.stderr
    assert "apt-get install chromium" in done.stderr


def test_ci_does_not_go_on_without_the_programs(tmp_path: Path) -> None:
    env = {"PATH": bare_path(tmp_path), "REQUIRE_TEST_PROGRAMS": "1"}
    assert execute("bash", str(ROOT / "scripts/test-programs.sh"), cwd=tmp_path, env=env).returncode == 1


def test_missing_programs_are_installed_from_the_distribution(tmp_path: Path) -> None:
    path = bare_path(tmp_path)
    log = tmp_path / "apt.log"
    (tmp_path / "bin/id").unlink()
    program(tmp_path / "bin/id", f"#!{shutil.which('bash')}\necho 0\n")
    program(tmp_path / "bin/apt-get", f'#!{shutil.which("bash")}\necho "$@" >> {log}\n')
    execute("bash", str(ROOT / "scripts/test-programs.sh"), cwd=tmp_path, env={"PATH": path})
    assert log.read_text().splitlines() == [
        "update -qq",
        "install --yes -qq --no-install-recommends gcc libc6-dev",
        "install --yes -qq --no-install-recommends prometheus",
        "install --yes -qq --no-install-recommends prometheus-alertmanager",
        "install --yes -qq --no-install-recommends chromium",
    ]


@pytest.mark.parametrize(
    ("printed", "status", "passes"),
    [
        ("===== 3 passed, 1 skipped in 0.12s =====", 0, True),
        ("===== 1 failed, 3 passed in 0.12s =====", 2, False),
        ("===== no tests ran in 0.01s =====", 0, False),
        ("===== 4 skipped in 0.01s =====", 0, False),
    ],
)
def test_ci_passes_only_if_tests_ran_and_passed(tmp_path: Path, printed: str, status: int, passes: bool) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    program(tmp_path / "bin/make", f'#!/bin/sh\n[ "$1" = lint ] && exit 0\necho "{printed}"\nexit {status}\n')
    done = execute("bash", ".ci/run", cwd=tmp_path, env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"})
    assert (done.returncode == 0) is passes, done.stderr
    if passes:
        assert done.stdout.splitlines()[-1] == printed


def test_ci_uses_no_environment_that_was_there_before(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    (tmp_path / ".venv-ci").mkdir()
    (tmp_path / ".venv-ci/broken").touch()
    program(tmp_path / "bin/make", '#!/bin/sh\n[ -e "$VENV" ] && exit 1\necho "==== 1 passed in 0.1s ===="\n')
    done = execute("bash", ".ci/run", cwd=tmp_path, env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stderr
