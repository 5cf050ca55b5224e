"""A node that is a cluster: etcd, API server, job controller, container runtime and kubelet, of Kubernetes 1.20.

All of it runs in the namespaces that enter.sh makes, with its files in a tmpfs that ends with them.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import trustme
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.e2e.agent import until
from tests.kubelet import image
from tests.kubelet.api import Api
from tests.kubelet.plugin import DevicePlugin

NODE: Final = "node1"
HOST: Final = "127.0.0.1"
PORT: Final = 6443
PATIENCE: Final = 90.0
"""Seconds after which something is certainly wrong."""
HOME: Final = Path("/run/node")
KUBELET_ROOT: Final = Path("/var/lib/kubelet")
POD_RESOURCES: Final = KUBELET_ROOT / "pod-resources/kubelet.sock"
KEPT: Final = 4000
"""Characters of a log that an error shows."""


class Program:
    """A daemon, which can be ended and started again. Its log grows on."""

    def __init__(self, command: Sequence[object], log: Path, environ: Mapping[str, str]) -> None:
        self.log = log
        self._command, self._environ = [str(word) for word in command], environ
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=HOME, env=self._environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def stop(self, *, kill: bool = False) -> None:
        """SIGTERM, or SIGKILL, and wait for the end."""
        if self._process is None:
            return
        if kill:
            self._process.kill()
        else:
            self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        finally:
            if self._process.returncode is None:
                self._process.kill()
                self._process.wait()
            self._process = None

    def check(self) -> None:
        """Raises AssertionError where it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            text = self.log.read_text(errors="replace")
            raise AssertionError(f"{self._command[0]} has ended with {self._process.returncode}: {text[-KEPT:]}")


class Cluster:
    """``kubelet``, ``apiserver`` and ``plugins`` may be ended and started by a test, which leaves them running."""

    def __init__(self, programs: Path, logs: Path, plugins: Sequence[DevicePlugin]) -> None:
        self.authority = HOME / "ca.crt"
        self.plugins = plugins
        self._tokens = {user: secrets.token_hex(16) for user in ("admin", f"system:node:{NODE}")}
        self._programs, self._logs = programs, logs
        self._environ = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        HOME.mkdir()
        self._write_files()
        self.api = self.client(self._tokens["admin"])
        self._etcd = self._program("etcd", "--data-dir=etcd", f"--listen-client-urls=http://{HOST}:2379", *_ETCD)
        self.apiserver = self._program("kube-apiserver", *_APISERVER)
        self._controllers = self._program("kube-controller-manager", *_CONTROLLERS)
        self._runtime = self._program("containerd", "--config=containerd.toml")
        self.kubelet = self._program("kubelet", *_KUBELET)

    def client(self, token: str) -> Api:
        return Api(f"https://{HOST}:{PORT}", self.authority, token)

    @contextmanager
    def running(self) -> Iterator[None]:
        everything = (self._etcd, self.apiserver, self._controllers, self._runtime, self.kubelet)
        try:
            self._etcd.start()
            self.start_apiserver()
            self._controllers.start()
            self._runtime.start()
            self._wait(self._has_image, "the runtime does not take the image", self._runtime)
            self.start_kubelet()
            yield
        finally:
            for plugin in self.plugins:
                plugin.stop()
            # Ended in the order of need; the end of their namespace ends the pods.
            for program in reversed(everything):
                program.stop(kill=True)

    def start_apiserver(self) -> None:
        self.apiserver.start()
        self._wait(self.api.ready, "the API server is not ready", self.apiserver)

    def start_kubelet(self) -> None:
        """It empties the plugins' folder when it starts, and plugins register again."""
        for plugin in self.plugins:
            plugin.stop()
        socket = KUBELET_ROOT / "device-plugins/kubelet.sock"
        socket.unlink(missing_ok=True)
        self.kubelet.start()
        self._wait(socket.exists, "the kubelet has no socket for device plugins", self.kubelet)
        for plugin in self.plugins:
            plugin.start()
        self._wait(self._offers_devices, "the node does not offer its devices", self.kubelet)

    def _offers_devices(self) -> bool:
        node = self.api.get("Node", NODE)
        offered = node["status"].get("allocatable", {}) if node is not None else {}
        return all(int(offered.get(plugin.resource, 0)) == plugin.count for plugin in self.plugins)

    def _has_image(self) -> bool:
        command: list[str | Path] = [
            self._programs / "ctr",
            "--address",
            HOME / "containerd.sock",
            "--namespace",
            "k8s.io",
        ]
        done = subprocess.run([*command, "images", "import", HOME / "image.tar"], capture_output=True, check=False)
        return done.returncode == 0

    def _wait(self, condition: Callable[[], object], message: str, program: Program) -> None:
        def holds() -> bool:
            program.check()
            return bool(condition())

        try:
            until(holds, message, PATIENCE)
        except AssertionError as error:
            error.add_note(f"the end of {program.log}:\n{program.log.read_text(errors='replace')[-KEPT:]}")
            raise

    def _program(self, name: str, *flags: str) -> Program:
        return Program((self._programs / name, *flags), self._logs / f"{name}.log", self._environ)

    def _write_files(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(HOME / "ca.crt")
        server = authority.issue_cert(HOST)
        server.private_key_and_cert_chain_pem.write_to_path(HOME / "server.pem")
        _write_key(HOME / "accounts")
        groups = {"admin": "system:masters", f"system:node:{NODE}": "system:nodes"}
        rows = [f'{token},{user},{user},"{groups[user]}"\n' for user, token in self._tokens.items()]
        (HOME / "tokens.csv").write_text("".join(rows))
        for name, user in (("admin", "admin"), ("kubelet", f"system:node:{NODE}")):
            (HOME / f"{name}.kubeconfig").write_text(yaml.safe_dump(_kubeconfig(self._tokens[user])))
        (HOME / "kubelet.yaml").write_text(yaml.safe_dump(_kubelet()))
        (HOME / "containerd.toml").write_text(_CONTAINERD.format(home=HOME, image=image.NAME, programs=self._programs))
        image.write(self._programs / "busybox", HOME / "image.tar")


_ETCD: Final = (
    f"--advertise-client-urls=http://{HOST}:2379",
    f"--listen-peer-urls=http://{HOST}:2380",
    # Nothing here outlives the test.
    "--unsafe-no-fsync",
)
_APISERVER: Final = (
    f"--etcd-servers=http://{HOST}:2379",
    f"--bind-address={HOST}",
    f"--advertise-address={HOST}",
    f"--secure-port={PORT}",
    "--insecure-port=0",
    "--tls-cert-file=server.pem",
    "--tls-private-key-file=server.pem",
    "--cert-dir=apiserver",
    "--token-auth-file=tokens.csv",
    "--authorization-mode=Node,RBAC",
    # Also for how long it waits for watches when it is told to end.
    "--request-timeout=10s",
    "--service-cluster-ip-range=10.0.0.0/24",
    "--service-account-issuer=https://kubernetes.default.svc",
    "--service-account-signing-key-file=accounts.key",
    "--service-account-key-file=accounts.pub",
    # Pods here have no account of their own.
    "--disable-admission-plugins=ServiceAccount",
)
_CONTROLLERS: Final = (
    "--controllers=job",
    "--kubeconfig=admin.kubeconfig",
    "--leader-elect=false",
    "--port=0",
    f"--bind-address={HOST}",
    "--cert-dir=controllers",
)
_KUBELET: Final = (
    "--config=kubelet.yaml",
    "--kubeconfig=kubelet.kubeconfig",
    "--container-runtime=remote",
    f"--container-runtime-endpoint=unix://{HOME}/containerd.sock",
    f"--hostname-override={NODE}",
)
_CONTAINERD: Final = """version = 2
root = "{home}/containerd"
state = "{home}/containerd.state"

[grpc]
address = "{home}/containerd.sock"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{image}"
disable_apparmor = true
restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{programs}/runc"

[plugins."io.containerd.grpc.v1.cri".cni]
conf_dir = "{home}/cni"
bin_dir = "{home}/cni"
"""


def _kubeconfig(token: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "here", "cluster": {"server": f"https://{HOST}:{PORT}", "certificate-authority": f"{HOME}/ca.crt"}}
        ],
        "users": [{"name": "me", "user": {"token": token}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "current-context": "here",
    }


def _kubelet() -> dict[str, Any]:
    """The host's disks and memory evict nobody; a pod that writes too much is, and soon."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": HOST,
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": os.environ["KUBELET_CGROUP"],
        "enforceNodeAllocatable": [],
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        "nodeStatusUpdateFrequency": "2s",
        "resolvConf": "",
        "syncFrequency": "5s",
        "volumePluginDir": f"{HOME}/volume-plugins",
        "volumeStatsAggPeriod": "1s",
    }


def _write_key(path: Path) -> None:
    """A pair of keys, .key and .pub."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    path.with_suffix(".key").write_bytes(private)
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    path.with_suffix(".pub").write_bytes(public)
