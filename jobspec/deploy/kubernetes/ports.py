"""The TCP ports of pods, through the API: a websocket for each connection, as `kubectl port-forward` has."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from jobctl.jobspec.deploy.apply.deployer import NodePlace
from jobctl.jobspec.deploy.kubernetes.api import Api
from jobctl.jobspec.deploy.kubernetes.kinds import POD
from jobctl.jobspec.deploy.kubernetes.pods import Pod
from jobctl.jobspec.deploy.kubernetes.problems import Call, refused_websocket
from jobctl.jobspec.deploy.model.errors import DeployError, PortClosed
from jobctl.jobspec.deploy.transport.relay import is_at_end


class PodPorts:
    """The ports of a job's pods; `pod_of` returns the pod that is a node now."""

    def __init__(self, api: Api, pod_of: Callable[[int | str], Pod]) -> None:
        self._api, self._pod_of = api, pod_of
        self._lock = threading.Lock()  # what is known of pods is not for several threads

    def _pod(self, node: int | str) -> Pod:
        with self._lock:
            return self._pod_of(node)

    def place(self, node: int | str) -> NodePlace:
        """Return which pod a node is, as its place."""
        return NodePlace(f"pod {self._pod(node).name}")

    def dial(self, node: int | str, port: int) -> Any:
        """Return a socket to a port of a pod. What listens there, the cluster says only when something is sent."""
        pod = self._pod(node)
        forward = self._open(pod, port)
        there = forward.socket(port)
        if not forward.connected and is_at_end(there):  # else it has answered and hung up by now
            raise PortClosed(f"pod {pod.name}: nothing listens at port {port}")
        return there

    def _open(self, pod: Pod, port: int) -> Any:
        from kubernetes.client import ApiClient, CoreV1Api
        from kubernetes.client.exceptions import ApiException
        from kubernetes.stream import portforward

        # A client of its own: `portforward` replaces a method of it for as long as it connects.
        client = CoreV1Api(ApiClient(self._api.client.configuration))
        try:
            return portforward(
                client.connect_get_namespaced_pod_portforward, pod.name, self._api.namespace, ports=str(port)
            )
        except ApiException as error:
            call = Call("create", POD, self._api.namespace, pod.name, "portforward")
            raise refused_websocket(call, str(error.reason), self._api.name) from error
        except OSError as error:
            raise DeployError(f"{self._api.name}: the connection was lost: {error}") from error
