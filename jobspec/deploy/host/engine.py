"""A host's engine (Docker Engine, or Podman behind the same API), spoken to through the Docker SDK over the host's own connection.

Its Unix socket is reached through sshd, otherwise by `docker system dial-stdio`, so that contexts, DOCKER_HOST and groups
of the user there hold, and nothing listens anywhere. Text of the command-line client is read for errors only.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

from jobctl.jobspec.deploy.host.engine_problems import diagnose, hangs
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.model.engine_kind import EngineKind, Kind, engine_kind, speaks
from jobctl.jobspec.deploy.model.errors import ENGINE_AWAY_CODES, HostError
from jobctl.jobspec.deploy.transport.answers import MAX_ANSWER_BYTES, bound
from jobctl.jobspec.deploy.transport.base import FIRST_ANSWER, Transport
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    import docker

T = TypeVar("T")

TIMEOUT = 60  # seconds for an answer of the engine
LISTING = 20.0  # seconds for a list of containers: who looks at a job waits for that of every host
PING = 2.0  # seconds for the first answer of an engine that has said nothing the last time
SILENCE = (
    600.0  # seconds without progress after which moving an image is given up: engines unpack layers without a word
)
API = "1.41"  # of Docker Engine 20.10; asking for the newest that both know would cost a request …
_TOO_OLD = re.compile(r"Minimum supported API version is (\d+\.\d+)")  # … and 29 says so: it knows none before 1.44

DIAL = ("system", "dial-stdio")
POLL_INTERVAL = 0.5  # seconds between two looks at an engine that is waited for


def podman_command(setting: str | None, socket: str) -> tuple[str, ...]:
    """Return how Podman's client is called on a host that has an engine at `socket` (empty: where it expects it)."""
    if setting == "sudo":
        return ("sudo", "-n", "podman")
    url = setting or (f"unix://{socket}" if socket else None)
    return ("podman", "--url", url) if url else ("podman",)


def docker_command(setting: str | None) -> tuple[str, ...]:
    """Return how `docker` is called on a host, given `docker=` of the hosts file: `sudo`, an engine's URL, or None."""
    if setting is None:
        return ("docker",)
    return ("sudo", "-n", "docker") if setting == "sudo" else ("docker", "-H", setting)


class Engine:
    """The engine of one host."""

    def __init__(self, transport: Transport, setting: str | None = None) -> None:
        self.transport, self._setting = transport, setting
        self._client: docker.APIClient | None = None
        self._place: _Place | None = None  # None: the host was not asked yet
        self._speaks: Kind | None = None  # which kind has answered
        self._kind: EngineKind | None = None
        self._silent = False  # whether it has said nothing when it was asked last

    @property
    def command(self) -> tuple[str, ...]:
        """How its command-line client is called on the host: `docker`, or Podman's own where the engine is Podman.

        Podman's is used where there is no other, too. An engine that nobody has talked to yet is taken for Docker Engine.
        """
        place = self._place
        own = place is not None and place.podman and (self._speaks == "podman" or not place.docker)
        return podman_command(self._setting, place.socket if place else "") if own else docker_command(self._setting)

    def kind(self) -> EngineKind:
        """Return which engine it is, by what it says of itself. Raises HostError."""
        if self._kind is None:
            with self.asked() as client:
                self._kind = engine_kind(self.answer(client.info(), dict))
        return self._kind

    def raises_limits(self) -> bool:
        """Say whether it may raise limits of its containers. Raises HostError.

        A rootless engine may not, nor one on a host where nobody may, as in a container.
        """
        rootless = self.kind().rootless
        return not rootless and self._place is not None and self._place.limits

    @contextmanager
    def asked(self, refused: Callable[[str], HostError] | None = None) -> Iterator[Any]:
        """Yield the SDK's client; what goes wrong on the way to the engine becomes a HostError, a bug in jobctl does not.

        Where the engine does not answer, its host is asked why; where it answers with an error, `refused` makes a
        HostError of its words. The engine is dialled at the first use, and again after it failed.
        """
        from docker.errors import APIError

        try:
            client: Any = self._client or _client(self.dial, self._hear)
            self._client = client
            if self._silent:  # one that hangs would cost its whole timeout each time
                self._ping(client, PING)
                self._silent = False
            yield client
        except HostError:
            raise
        except APIError as error:
            words = str(error.explanation or error)
            host = self.transport.host
            raise (
                refused(words) if refused else HostError(host, "engine-refused", f"its engine refuses: {words}")
            ) from error
        except _on_the_way() as error:
            command, self._client, self._place = self.command, None, None
            self._silent = _is_timeout(error)
            if self._silent:
                raise hangs(self.transport, self._speaks or "docker") from error
            raise diagnose(self.transport, command, str(error)) from error

    def check(self) -> None:
        """Raise HostError if it has said nothing when it was asked last, and says nothing still."""
        if self._silent:
            with self.asked():
                pass

    def listed(self, label: str) -> Any:
        """Return the containers with a label, running or not, as it lists them. Raises HostError.

        This is asked again and again, on a connection of the SDK's but without it: it takes three times as long.
        """
        with self.asked() as client:
            answer = self._get(client, f"/v{client._version}/containers/json?{_with_label(label)}", LISTING)
            if answer is None:  # it may know only newer versions, or have a reason: the SDK finds out
                return client.containers(all=True, filters={"label": label})
            try:
                return json.loads(answer)
            except ValueError:  # which an engine never answers: see `answer`
                return None

    def _ping(self, client: Any, timeout: float) -> None:
        self._get(client, f"/v{client._version}/_ping", timeout)

    def _get(self, client: Any, path: str, timeout: float) -> bytes | None:
        """Return what is at `path`, None unless the engine says that all is well."""
        from http.client import HTTPConnection

        pool = client.adapter.get_connection(client.base_url)
        connection = pool._get_conn(TIMEOUT)
        try:
            HTTPConnection.request(connection, "GET", path)
            connection.sock.settimeout(timeout)
            with HTTPConnection.getresponse(connection) as answer:
                body = answer.read(MAX_ANSWER_BYTES + 1)
                bound(self.transport.host, "its engine", len(body))
                self._hear(answer.getheader("Server"))
                return body if answer.status == 200 else None
        except BaseException:
            connection.close()
            raise
        finally:
            pool._put_conn(connection)

    def wait(self, patience: float) -> None:
        """Return when it answers. Raises HostError if it does not within `patience` seconds."""
        deadline = time.monotonic() + patience
        while True:
            try:
                with self.asked() as client:
                    self._ping(client, LISTING)
                    client.ping()
                return
            except HostError as error:
                if error.code not in ENGINE_AWAY_CODES or time.monotonic() >= deadline:
                    raise
            time.sleep(POLL_INTERVAL)

    def answer(self, value: Any, kind: type[T]) -> T:
        """Return what the engine answered if it is a `kind`. Raises HostError."""
        if isinstance(value, kind):
            return value
        message = "its engine answers what none does: is something else behind its socket?"
        raise HostError(self.transport.host, "engine-failed", message, "try `docker version` there")

    def dial(self) -> Any:
        """Return something like a socket to the engine: its own, otherwise what `docker` makes of its input and output.

        The latter works wherever `docker` does, and costs a process of it on the host, some 40 ms of CPU time each.
        """
        if self._place is None:
            self._place = self._find()
        if self._place.socket and (found := self.transport.open_socket(self._place.socket)) is not None:
            return found
        self._place = replace(self._place, socket="")
        return self.transport.dial([*self.command, *DIAL])

    def _find(self) -> _Place:
        setting = "" if self._setting in (None, "sudo") else str(self._setting)
        result = self.transport.run(SCRIPTS.argv("socket", setting), timeout=FIRST_ANSWER)
        lines = result.out.decode("utf-8", "replace").splitlines()
        socket = next((line for line in reversed(lines) if line.startswith("/")), "")
        # With sudo, who logs in may not use it.
        return _Place(
            "docker" in lines, "podman" in lines, "" if self._setting == "sudo" else socket, "limits" in lines
        )

    def _hear(self, server: str | None) -> None:
        self._speaks = speaks(server) or self._speaks


@dataclass(frozen=True, slots=True)
class _Place:
    """Which clients a host has, and where its engine listens: nothing if only a client knows; whether it may raise limits."""

    docker: bool
    podman: bool
    socket: str
    limits: bool


@lru_cache
def _with_label(label: str) -> str:
    return urlencode({"all": 1, "filters": json.dumps({"label": [label]})})


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


def _is_timeout(error: Exception) -> bool:
    """Say whether an engine was reached, and has said nothing for as long as it may."""
    from requests import Timeout
    from urllib3.exceptions import TimeoutError as NoAnswer

    return isinstance(error, TimeoutError | Timeout | NoAnswer)


def _client(dial: Callable[[], Any], hear: Callable[[str | None], None]) -> docker.APIClient:
    """Return the SDK's client; `hear` gets the header `Server` of each answer."""
    import docker

    client: Any = docker.APIClient(base_url="http://localhost:2375", version=API, timeout=TIMEOUT)
    adapter = _adapter(dial, client, hear)
    client.mount("http+docker://", adapter)
    client.adapter = adapter
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


def _adapter(dial: Callable[[], Any], client: Any, hear: Callable[[str | None], None]) -> Any:
    from docker.transport import sshconn

    sdk: Any = sshconn
    make_pool = _pools(dial)

    class Adapter(sdk.SSHHTTPAdapter):  # type: ignore[misc]
        """The SDK's adapter, on connections that are dialled by us and opened by nobody else."""

        def _create_paramiko_client(self, base_url: str) -> None:
            self.ssh_client = None

        def _connect(self) -> None:
            pass

        def send(self, request: Any, *args: Any, **how: Any) -> Any:
            """Send a request in a version of the API that the engine knows."""
            answer = _as_known(partial(super().send, *args, **how), client, request)
            hear(answer.headers.get("Server"))
            return answer

        def get_connection(self, url: str, proxies: Any = None) -> Any:
            # One pool for all: by URL, as the SDK has it, every request would dial, and leave its session behind.
            with self.pools.lock:
                pool = self.pools.get(_ENGINE)
                if pool is None:
                    pool = self.pools[_ENGINE] = make_pool(timeout=self.timeout, maxsize=self.max_pool_size)
                return pool

    return Adapter("ssh://localhost", timeout=TIMEOUT)


def _pools(dial: Callable[[], Any]) -> Any:
    """Return the SDK's class of pools, with connections that are dialled by us."""
    from docker.transport import sshconn

    sdk: Any = sshconn

    class Connection(sdk.SSHConnection):  # type: ignore[misc]
        def connect(self) -> None:
            self.sock = dial()
            self.sock.settimeout(self.timeout)

    class Pool(sdk.SSHConnectionPool):  # type: ignore[misc]
        def _new_conn(self) -> Connection:
            return Connection(None, self.timeout, "localhost")

        def _get_conn(self, timeout: float | None = None) -> Any:
            """Return a connection that is open, or dials when it is used: the SDK's pool hands out closed ones, too."""
            connection = super()._get_conn(timeout)
            if connection.sock is not None and _is_dropped(connection.sock):
                connection.close()
            return connection

    return Pool


def _is_dropped(idle: Any) -> bool:
    """Say whether a connection on which no answer is awaited has been closed, or lost with the host's own connection."""
    from urllib3.util.wait import wait_for_read

    if hasattr(idle, "eof_received"):  # a channel: to wait for it would cost it two file descriptors
        return bool(idle.closed or idle.eof_received)
    return wait_for_read(idle, timeout=0)
