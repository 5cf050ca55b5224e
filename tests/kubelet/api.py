"""Requests to the API server of the test's cluster."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]
MERGE: Final = "application/merge-patch+json"
_PATHS: Final = {
    "Node": "/api/v1/nodes",
    "Namespace": "/api/v1/namespaces",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "Job": "/apis/batch/v1/namespaces/{namespace}/jobs",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}


class Refused(Exception):
    """The server's answer is an error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"HTTP {code}: {text}")
        self.code = code


class Api:
    def __init__(self, url: str, authority: Path, token: str) -> None:
        self._url, self._token = url, token
        self._tls = ssl.create_default_context(cafile=authority)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Json:
        """The answer. Raises Refused, and OSError where nobody answers."""
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        headers["Content-Type"] = MERGE if method == "PATCH" else "application/json"
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self._url + path, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20, context=self._tls) as answer:
                found: Json = json.loads(answer.read())
                return found
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.code, error.read().decode(errors="replace")[:500]) from None

    def ready(self) -> bool:
        try:
            self._plain("/readyz")
        except OSError:
            return False
        return True

    def _plain(self, path: str) -> bytes:
        request = urllib.request.Request(self._url + path, headers={"Authorization": f"Bearer {self._token}"})
        with urllib.request.urlopen(request, timeout=5, context=self._tls) as answer:
            body: bytes = answer.read()
            return body

    def create(self, item: Mapping[str, Any]) -> Json:
        """The object as the server made it."""
        return self.call("POST", path_of(item["kind"], item["metadata"].get("namespace", "")), item)

    def get(self, kind: str, name: str, namespace: str = "") -> Json | None:
        """The object; None where there is none."""
        try:
            return self.call("GET", f"{path_of(kind, namespace)}/{name}")
        except Refused as error:
            if error.code == 404:
                return None
            raise

    def delete(self, kind: str, name: str, namespace: str = "", grace: int | None = None) -> None:
        """Whatever is there of that name. ``grace``: seconds that containers get to end; 0: it is forgotten at once."""
        # What it owns stays: the garbage collector, which would delete that, does not run.
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            self.call("DELETE", f"{path_of(kind, namespace)}/{name}", options)
        except Refused as error:
            if error.code != 404:
                raise


def path_of(kind: str, namespace: str) -> str:
    return _PATHS[kind].format(namespace=namespace)
