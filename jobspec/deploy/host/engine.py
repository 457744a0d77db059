"""A host's Docker Engine, spoken to through the Docker SDK over the host's own connection.

Its Unix socket is reached through sshd, otherwise by `docker system dial-stdio`, so that contexts, DOCKER_HOST and groups
of the user there hold, and nothing listens anywhere. Text of the command-line client is read for errors only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.errors import AWAY, HostError
from jobctl.jobspec.deploy.transport.base import FIRST_ANSWER, Result, Transport

if TYPE_CHECKING:
    import docker

T = TypeVar("T")

TIMEOUT = 60  # seconds for an answer of the engine
SILENCE = (
    600.0  # seconds without progress after which moving an image is given up: engines unpack layers without a word
)
API = "1.41"  # of Docker Engine 20.10; asking for the newest that both know would cost a request …
_TOO_OLD = re.compile(r"Minimum supported API version is (\d+\.\d+)")  # … and 29 says so: it knows none before 1.44

DIAL = ("system", "dial-stdio")
LOOK = 0.5  # seconds between two looks at an engine that is waited for


def docker_command(setting: str | None) -> tuple[str, ...]:
    """Return how `docker` is called on a host, given `docker=` of the hosts file: `sudo`, an engine's URL, or None."""
    if setting is None:
        return ("docker",)
    return ("sudo", "-n", "docker") if setting == "sudo" else ("docker", "-H", setting)


class Engine:
    """The Docker Engine of one host."""

    def __init__(self, transport: Transport, setting: str | None = None) -> None:
        self.transport, self.command = transport, docker_command(setting)
        self._client: docker.APIClient | None = None
        self._socket: str | None = None  # where it listens, nothing if only `docker` knows; None: not asked yet

    @contextmanager
    def asked(self, refused: Callable[[str], HostError] | None = None) -> Iterator[Any]:
        """Yield the SDK's client; what goes wrong on the way to the engine becomes a HostError, a bug in jobctl does not.

        Where the engine does not answer, its host is asked why; where it answers with an error, `refused` makes a
        HostError of its words. The engine is dialled at the first use, and again after it failed.
        """
        from docker.errors import APIError

        try:
            if self._client is None:
                self._client = _client(self.dial)
            yield self._client
        except HostError:
            raise
        except APIError as error:
            words = str(error.explanation or error)
            host = self.transport.host
            raise (
                refused(words) if refused else HostError(host, "engine-refused", f"its engine refuses: {words}")
            ) from error
        except _on_the_way() as error:
            self._client = self._socket = None
            raise diagnose(self.transport, self.command, str(error)) from error

    def wait(self, patience: float) -> None:
        """Return when it answers. Raises HostError if it does not within `patience` seconds."""
        deadline = time.monotonic() + patience
        while True:
            try:
                with self.asked() as client:
                    client.ping()
                return
            except HostError as error:
                if error.code not in AWAY or time.monotonic() >= deadline:
                    raise
            time.sleep(LOOK)

    def answer(self, value: Any, kind: type[T]) -> T:
        """Return what the engine answered if it is a `kind`. Raises HostError."""
        if isinstance(value, kind):
            return value
        message = "its Docker Engine answers what none does: is something else behind its socket?"
        raise HostError(self.transport.host, "engine-failed", message, "try `docker version` there")

    def dial(self) -> Any:
        """Return something like a socket to the engine: its own, otherwise what `docker` makes of its input and output.

        The latter works wherever `docker` does, and costs a process of it on the host, some 40 ms of CPU time each.
        """
        if self._socket is None:
            self._socket = self._find_socket()
        if self._socket and (found := self.transport.open_socket(self._socket)) is not None:
            return found
        self._socket = ""
        return self.transport.dial([*self.command, *DIAL])

    def _find_socket(self) -> str:
        if self.command[0] != "docker":
            return ""  # sudo: who logs in may not use it
        argv = SCRIPTS.argv("socket", *self.command[2:])
        lines = self.transport.run(argv, timeout=FIRST_ANSWER).out.decode("utf-8", "replace").splitlines()
        return lines[-1] if lines and lines[-1].startswith("/") else ""


@contextmanager
def patient(client: Any) -> Iterator[None]:
    """Let requests be silent for as long as moving an image may be."""
    client.timeout = SILENCE
    try:
        yield
    finally:
        client.timeout = TIMEOUT  # not what it was: two copies may be under way


def _on_the_way() -> tuple[type[Exception], ...]:
    """Return what the SDK, and the libraries below it, raise where an engine does not answer, or not what it should."""
    from http.client import HTTPException

    from docker.errors import DockerException
    from paramiko import SSHException
    from requests import RequestException
    from urllib3.exceptions import HTTPError

    return (DockerException, RequestException, HTTPError, HTTPException, SSHException, EOFError, OSError)


def _client(dial: Callable[[], Any]) -> docker.APIClient:
    import docker

    client: Any = docker.APIClient(base_url="http://localhost:2375", version=API, timeout=TIMEOUT)
    adapter = _adapter(dial, client)
    client.mount("http+docker://", adapter)
    client.base_url = "http+docker://ssh"  # how the SDK knows that raw streams are channels
    client.trust_env = (
        False  # proxies and .netrc are not for this; to look for them took a tenth of each request's time
    )
    found: docker.APIClient = client
    return found


_ENGINE = "engine"


def _as_known(send: Callable[..., Any], client: Any, request: Any) -> Any:
    """Send a request; where the engine knows no version as old as ours, in the oldest that it knows."""
    from requests import Request

    if not isinstance(request.body, str | bytes | None) and client._version == API:
        # What is read as it is sent cannot be sent again.
        _as_known(send, client, Request("GET", f"{client.base_url}/v{API}/_ping").prepare())
        request.url = request.url.replace(f"/v{API}/", f"/v{client._version}/", 1)
    answer = send(request)
    wanted = _TOO_OLD.search(answer.text) if answer.status_code == 400 else None
    if wanted is None or f"/v{API}/" not in request.url:
        return answer
    client._version = wanted[1]
    request.url = request.url.replace(f"/v{API}/", f"/v{wanted[1]}/", 1)
    return send(request)


def _adapter(dial: Callable[[], Any], client: Any) -> Any:
    from docker.transport import sshconn

    sdk: Any = sshconn

    class Connection(sdk.SSHConnection):  # type: ignore[misc]
        def connect(self) -> None:
            self.sock = dial()
            self.sock.settimeout(self.timeout)

    class Pool(sdk.SSHConnectionPool):  # type: ignore[misc]
        def _new_conn(self) -> Connection:
            return Connection(None, self.timeout, "localhost")

    class Adapter(sdk.SSHHTTPAdapter):  # type: ignore[misc]
        """The SDK's adapter, on connections that are dialled by us and opened by nobody else."""

        def _create_paramiko_client(self, base_url: str) -> None:
            self.ssh_client = None

        def _connect(self) -> None:
            pass

        def send(self, request: Any, *args: Any, **how: Any) -> Any:
            """Send a request in a version of the API that the engine knows."""
            return _as_known(partial(super().send, *args, **how), client, request)

        def get_connection(self, url: str, proxies: Any = None) -> Any:
            # One pool for all: by URL, as the SDK has it, every request would dial, and leave its session behind.
            with self.pools.lock:
                pool = self.pools.get(_ENGINE)
                if pool is None:
                    pool = self.pools[_ENGINE] = Pool(timeout=self.timeout, maxsize=self.max_pool_size)
                return pool

    return Adapter("ssh://localhost", timeout=TIMEOUT)


def diagnose(transport: Transport, command: Sequence[str], error: str) -> HostError:
    """Return why the engine does not answer, found by asking the host."""
    host = transport.host
    result = transport.run([*command, "version", "--format", "{{.Server.Version}}"], timeout=TIMEOUT)
    text = (result.err or result.out).decode("utf-8", "replace")
    for matches, code, message, hint in _CAUSES:
        if matches(result, text):
            return HostError(host, code, message, hint)
    return HostError(
        host, "engine-failed", f"its Docker Engine does not answer: {result.words if result.code else error}"
    )


_CAUSES: tuple[tuple[Callable[[Result, str], bool], str, str, str], ...] = (
    (
        lambda result, text: "sudo" in text and ("password" in text or "not allowed" in text),
        "sudo-refused",
        "sudo asks for a password there",
        "allow `docker` without one in sudoers, or add the user to the group docker and leave out `docker=sudo`",
    ),
    (
        lambda result, text: result.code == 127 or "not found" in text,
        "docker-missing",
        "there is no `docker` on its PATH",
        "install Docker Engine there (https://docs.docker.com/engine/install/)",
    ),
    (
        lambda result, text: "permission denied" in text.lower(),
        "docker-no-permission",
        "its user may not talk to the Docker Engine",
        "`sudo usermod -aG docker USER` there and log in again, or `docker=sudo` in the hosts file",
    ),
    (
        lambda result, text: "Cannot connect" in text or "daemon running" in text,
        "docker-down",
        "its Docker Engine does not run",
        "`sudo systemctl start docker` there",
    ),
)
