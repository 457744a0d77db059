"""An API server, spoken to over the connections of the official client, which knows kubeconfigs and credentials.

Requests are made here and nowhere else: each waits as the server asks it to (Retry-After), and is made again where the
connection broke. All of them may be: apply says what should be, and deletions name the object's uid.
The client's own repetitions leave out PATCH, which apply is.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode

from jobctl.jobspec.deploy.kubernetes import kubeconfig
from jobctl.jobspec.deploy.kubernetes.kinds import Kind, Object, key_of, known_kind
from jobctl.jobspec.deploy.kubernetes.problems import ApiError, Call, ConfigError, Cut, Unreachable, problem_of
from jobctl.jobspec.records import dataclass

T = TypeVar("T")

FIELD_MANAGER = "jobctl"
APPLY = "application/apply-patch+yaml"  # JSON is YAML
MERGE = "application/merge-patch+json"
CONNECT_TIMEOUT = 5.0  # seconds to connect
READ_TIMEOUT = 30.0  # seconds without a byte of an answer
RETRY_PAUSES = (0.2, 0.5, 1.0)  # seconds before a request is made again whose connection broke
MAX_OVERLOAD_WAIT = 60.0  # seconds that a server may have us wait because it is overloaded
CONNECTIONS = 1024  # that are kept: each log that is followed has one
PAGE = 500  # objects of a list that are asked for at once


@dataclass(frozen=True, slots=True)
class _Request:
    """One request: what is asked for, and the object that goes with it (its `content` type is the kind of a patch)."""

    method: str
    call: Call
    query: Mapping[str, str]
    body: Object | None = None
    content: str = "application/json"

    @property
    def path(self) -> str:
        """The path and query of its URL."""
        return f"{self.call.path}{'?' + urlencode(self.query) if self.query else ''}"

    @property
    def changes(self) -> bool:
        """Whether it changes an object of the cluster."""
        return self.method in ("PATCH", "DELETE") and "dryRun" not in self.query


class Api:
    """One API server with the user's credentials, known by its `context` in the kubeconfig (None: that of our own pod).

    `guard` is called before each request that changes something; what it raises keeps that from being made.
    """

    def __init__(self, client: Any, context: str | None, namespace: str) -> None:
        self.client, self.context, self.namespace = client, context, namespace
        self.name = context or client.configuration.host
        self.guard: Callable[[], None] = lambda: None

    # Requests.

    def get(self, call: Call, query: Mapping[str, str] | None = None) -> Object:
        """Return the answer to a request that reads."""
        return self._ask("GET", call, query or {})

    def find(self, kind: Kind, name: str) -> Object | None:
        """Return an object of the namespace, None if there is none."""
        try:
            return self.get(Call("get", kind, self.namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def find_all(self, kind: Kind, query: Mapping[str, str] | None = None) -> tuple[list[Object], str]:
        """Return all objects that `query` chooses, and the resourceVersion that they are of. Read in pages.

        A list that takes so long that its beginning is forgotten (410) begins again.
        """
        call = Call("list", kind, self.namespace if kind.namespaced else None)
        items: list[Object] = []
        more = {"limit": str(PAGE), **(query or {})}
        while True:
            try:
                answer = self.get(call, more)
            except ApiError as error:
                if error.status == 410 and "continue" in more:
                    items, more = [], {k: v for k, v in more.items() if k != "continue"}
                    continue
                raise
            # Items of a list do not say what they are.
            items += [{**item, "apiVersion": kind.api_version, "kind": kind.kind} for item in answer["items"] or ()]
            meta = answer["metadata"]
            if not meta.get("continue"):
                return items, meta.get("resourceVersion", "")
            more["continue"] = meta["continue"]

    def apply(
        self, manifest: Object, *, dry_run: bool = False, force: bool = False, manager: str = FIELD_MANAGER
    ) -> Object:
        """Apply a manifest on the server's side; what nobody set differently becomes as it says. Raises ApiError 409."""
        call = Call("patch", self.kind_of(manifest), self.namespace, key_of(manifest).name)
        # What the server does not know, it would drop without a word; one older than 1.25 does all the same.
        strict = {"fieldValidation": "Strict"}
        query = {"fieldManager": manager, "force": "true" if force else "false", **strict}
        if dry_run:
            query["dryRun"] = "All"
        return self._ask("PATCH", call, query, manifest, APPLY)

    def merge(self, thing: Object, change: Object) -> None:
        """Change what `change` says of an object, and nothing else. Raises ApiError (`is_another`) if it is another by now."""
        key, uid = key_of(thing), thing["metadata"]["uid"]
        call = Call("patch", self.kind_of(thing), self.namespace, key.name)
        whole = {**change, "metadata": {**change.get("metadata", {}), "uid": uid}}
        self._ask("PATCH", call, {"fieldManager": FIELD_MANAGER}, whole, MERGE)

    def create(self, kind: Kind, body: Object) -> Object:
        """Create an object that is only asked about, as reviews are."""
        call = Call("create", kind, self.namespace if kind.namespaced else None)
        return self._ask("POST", call, {}, body)

    def delete(self, kind: Kind, name: str, uid: str, *, last: bool = False, dry_run: bool = False) -> None:
        """Delete an object, and what hangs on it: before it (`last`), or after.

        One that has gone, or is another by now, is no error.
        """
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground" if last else "Background",
            "preconditions": {"uid": uid},
        }
        try:
            # The server goes by the body, and takes no notice of the query where there is one.
            query, dry = ({"dryRun": "All"}, {"dryRun": ["All"]}) if dry_run else ({}, {})
            self._ask("DELETE", Call("delete", kind, self.namespace, name), query, {**body, **dry})
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    def stream(self, call: Call, query: Mapping[str, str], silence: float | None) -> Any:
        """Return an open answer that is read as it comes; `silence` seconds without a byte end it."""
        return self._send(_Request("GET", call, query), lambda answer: answer, silence)

    def lines(self, answer: Any, call: Call, *, rest_too: bool = False) -> Iterator[bytes]:
        """Yield the lines of an open answer as they come, without their ends; `rest_too`: the last also if it has none.

        Raises Cut if the connection breaks in the middle.
        """
        rest = b""
        try:
            while data := self._some(answer, call):
                *whole, rest = (rest + data).split(b"\n")
                yield from whole
            if rest and rest_too:
                yield rest
        finally:
            answer.close()

    def _some(self, answer: Any, call: Call) -> bytes:
        """Return what has come by now of an answer; nothing at its end."""
        import urllib3

        try:
            data: bytes = answer.read1(65536)
            return data
        except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError) as cut:
            # ValueError and AttributeError: another thread has closed it.
            raise Cut(self.name, f"the connection broke: cannot {call}: {_words(cut)}") from cut

    def kind_of(self, manifest: Mapping[str, Any]) -> Kind:
        """Return the kind of an object; one that is not known here is asked for. Raises ApiError if nothing serves it."""
        version, kind = manifest["apiVersion"], manifest["kind"]
        known = known_kind(version, kind)
        if known is not None:
            return known
        group, _, number = version.rpartition("/")
        asked = Kind(group, number, kind, kind.lower() + "s")
        for resource in self.served(asked):
            if resource["kind"] == kind and "/" not in resource["name"]:
                return Kind(group, number, kind, resource["name"], resource["namespaced"])
        raise problem_of(Call("list", asked, self.namespace), 404, b"", self.name)

    def served(self, kind: Kind) -> list[Object]:
        """Return what the server serves of a kind's group and version; nothing if it has no such version."""
        call = Call("get", Kind(kind.group, kind.version, "APIResourceList", "", namespaced=False))
        try:
            found: list[Object] = self._ask("GET", call)["resources"]
        except ApiError as error:
            if error.status == 404:
                return []
            raise
        return found

    def raw(self, path: str) -> Object:
        """Return what the server has at a path that is no object's: `/version`, `/apis/GROUP`."""
        return self._ask("GET", _Path("get", _NOTHING, path))

    def headers(self) -> dict[str, str]:
        """Return the credentials as headers; it asks for new tokens when they grow old. Raises ConfigError."""
        configuration = self.client.configuration
        found = {"User-Agent": "jobctl", "Accept": "application/json"}
        for auth in configuration.auth_settings().values():
            if auth.get("value") and auth.get("in") == "header":
                found[auth["key"]] = _carried(auth["value"])
        return found

    def _ask(
        self,
        method: str,
        call: Call,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content: str = "application/json",
    ) -> Object:
        """Return what is answered to a request, read whole."""
        said = self._send(_Request(method, call, query or {}, body, content), _read, READ_TIMEOUT)
        try:
            found: Object = json.loads(said)
        except ValueError as error:
            hint = "does the kubeconfig name the right server?"
            raise Unreachable(self.name, f"what answers is no API server: {error}", hint) from error
        return found

    def _send(self, request: _Request, take: Callable[[Any], T], silence: float | None) -> T:
        """Make a request until it is answered; return what is taken of the answer. Raises ApiError, Unreachable."""
        waited, broken = 0.0, list(RETRY_PAUSES)
        while True:
            if request.changes:
                self.guard()
            try:
                answer = self._once(request, silence)
                if answer.status < 300:
                    return take(answer)
                said, after = _read(answer), answer.headers.get("Retry-After", "")
            except _broken() as cut:
                if not broken:
                    hint = "`kubectl get --raw /readyz` asks it too; `--context` chooses another cluster"
                    raise Unreachable(self.name, f"the API server does not answer: {_words(cut)}", hint) from cut
                time.sleep(broken.pop(0))
                continue
            pause = max(RETRY_PAUSES[-1], float(after)) if after.isdigit() else RETRY_PAUSES[-1]
            waits = answer.status == 429 or (answer.status >= 500 and after)  # 500 and 504, too, may ask for it
            if not waits or waited + pause > MAX_OVERLOAD_WAIT:
                raise problem_of(request.call, answer.status, said, self.name)
            time.sleep(pause)
            waited += pause

    def _once(self, request: _Request, silence: float | None) -> Any:
        import urllib3

        headers = self.headers() | ({} if request.body is None else {"Content-Type": request.content})
        return self.client.rest_client.pool_manager.request(
            request.method,
            f"{self.client.configuration.host}{request.path}",
            body=None if request.body is None else json.dumps(request.body).encode(),
            headers=headers,
            timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT, read=silence),
            preload_content=False,
            retries=False,
            redirect=False,
        )

    def close(self) -> None:
        """Let go of all connections."""
        self.client.rest_client.pool_manager.clear()


class _Path(Call):
    """A request for a path that is no object's."""

    @property
    def path(self) -> str:
        """The path of the request."""
        return self.namespace or ""

    def __str__(self) -> str:
        return f"get {self.namespace}"


_NOTHING = Kind("", "v1", "", "", namespaced=False)


def _carried(value: str) -> str:
    """Return a header's value, less the end of the line of the file that it was read from; nobody else may tell what it is."""
    value = value.strip()
    if not (value.isascii() and value.isprintable()):
        hint = "is there a line break in its token?"
        raise ConfigError("the credentials of the kubeconfig have characters that no header can carry", hint)
    return value


def _broken() -> tuple[type[BaseException], ...]:
    import urllib3

    return (urllib3.exceptions.HTTPError, OSError)


def _words(cut: BaseException) -> str:
    """Return what went wrong on a connection, without the library's own names for it."""
    text = str(cut).strip() or type(cut).__name__
    return text.rpartition("object at 0x")[2].partition(": ")[2] or text if "object at 0x" in text else text


def _read(answer: Any) -> bytes:
    try:
        data: bytes = answer.read()
    finally:
        answer.release_conn()
    return data


def connect(context: str | None, namespace: str | None, environ: Mapping[str, str] = os.environ) -> Api:
    """Return the API server of a kubeconfig's `context` (default: its current one), or of the pod that this runs in.

    `namespace` defaults to the context's. Raises ConfigError.
    """
    try:
        import yaml
        from kubernetes import client, config
        from kubernetes.config.config_exception import ConfigException
    except ImportError as error:
        raise ConfigError(
            "target `kubernetes` needs the Python package `kubernetes`, which is not installed",
            "`pip install kubernetes`, in the environment where jobctl is",
        ) from error
    configuration = client.Configuration()
    configuration.connection_pool_maxsize = CONNECTIONS
    try:
        if context is None and "KUBERNETES_SERVICE_HOST" in environ and not kubeconfig.is_there(environ):
            config.load_incluster_config(client_configuration=configuration)
            name, inside = None, _pods_namespace()
        else:
            name, inside = kubeconfig.load(configuration, environ.get("KUBECONFIG") or "~/.kube/config", context)
    except (ConfigException, yaml.YAMLError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "KUBECONFIG names it, default ~/.kube/config; `kubectl config view` shows what is read"
        raise ConfigError(f"no cluster is known: {error}", hint) from error
    # Settled here: the client would look for it in the environment again at every request, in the thread of each watch.
    configuration.proxy = configuration.proxy
    configuration.proxy_headers = kubeconfig.proxy_login(configuration.proxy)
    return Api(client.ApiClient(configuration), name, namespace or inside)


def _pods_namespace() -> str:
    """Return the namespace of the pod that this runs in."""
    try:
        with open("/var/run/secrets/kubernetes.io/serviceaccount/namespace", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return "default"
