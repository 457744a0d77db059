"""A client of etcd's gateway."""

from __future__ import annotations

import binascii
import contextlib
import json
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.system.files import parse_json

if TYPE_CHECKING:
    from typing import Any, List, Optional

    from jobctl.jobspec.launcher.order.launch import EtcdSettings, TlsFiles
    from jobctl.jobspec.launcher.system.files import Json
ETCD_TIMEOUT = 2.0  # seconds within which a member of etcd has to answer
STALE_TOKEN = ("auth token", "auth store", "user name is empty")  # in what it answers to a token that it forgot


class EtcdError(Exception):
    """etcd did not do as asked; `status` is that of HTTP, None where no member answered."""

    def __init__(self, message: str, status: Optional[int] = None) -> None:
        super().__init__(message)
        self.status = status


class Etcd:
    """The calls of etcd's JSON gateway (v3) that a lease needs. Each raises EtcdError.

    https://etcd.io/docs/v3.5/dev-guide/api_grpc_gateway/
    """

    def __init__(self, settings: EtcdSettings, password: Optional[str]) -> None:
        self.endpoints: List[str] = list(settings.endpoints)
        self.user, self.password, self.token = settings.user, password, ""
        self.tls = settings.tls
        self.connection: Any = None
        self.doubt = False  # whether members are asked whether they have a leader, before they are asked for more

    def call(self, path: str, **body: Any) -> Json:
        """Return what the first member answers that does; the one that has answered last is asked first."""
        problems = []
        for _ in self.endpoints:
            try:
                if self.doubt and not self.leader(self.endpoints[0]):
                    raise EtcdError("it has no leader")
                found = self.authorised(path, body)
                self.doubt = False
                return found
            except EtcdError as error:
                if error.status is not None and error.status < 500:
                    raise
                problems.append("%s: %s" % (self.endpoints[0], error))
                self.endpoints.append(self.endpoints.pop(0))
                self.doubt = True
        raise EtcdError("etcd does not answer: %s" % "; ".join(problems))

    def leader(self, member: str) -> int:
        """Return whom a member follows, 0 for nobody; it knows at once, where all else waits for a leader."""
        return int(self.ask(member, "/v3/maintenance/status", {}).get("leader", 0))

    def authorised(self, path: str, body: Json) -> Json:
        """Ask the first member; with a new token where it knows the old one no more (it forgets them in five minutes)."""
        if self.user and not self.token:
            found = self.ask(self.endpoints[0], "/v3/auth/authenticate", {"name": self.user, "password": self.password})
            self.token = found["token"]
            return self.ask(self.endpoints[0], path, body)  # a new token: what is refused now is refused
        try:
            return self.ask(self.endpoints[0], path, body)
        except EtcdError as error:
            if not self.user or not (error.status == 401 or any(sign in str(error) for sign in STALE_TOKEN)):
                raise
            self.token = ""
            return self.authorised(path, body)

    def ask(self, endpoint: str, path: str, body: Json) -> Json:
        """Ask one member, by the open connection if there is one that still works."""
        import http.client

        kept, self.connection = self.connection, None
        if kept is not None and kept.name != endpoint:
            kept.close()
            kept = None
        try:
            if kept is not None:
                with contextlib.suppress(ConnectionError):  # it was closed meanwhile
                    return self.exchange(kept, path, body)
            return self.exchange(self.connect(endpoint), path, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise EtcdError(str(error) or type(error).__name__) from error

    def connect(self, endpoint: str) -> Any:
        """Return a connection to a member, which is opened with the first request."""
        import http.client

        host, _, port = endpoint.rpartition(":")
        host = host.strip("[]")
        made: Any
        if self.tls is None:
            made = http.client.HTTPConnection(host, int(port), timeout=ETCD_TIMEOUT)
        else:
            made = http.client.HTTPSConnection(host, int(port), timeout=ETCD_TIMEOUT, context=tls_context(self.tls))
        made.name = endpoint
        return made

    def exchange(self, connection: Any, path: str, body: Json) -> Json:
        """Send a request and read the answer; the connection is kept if all went well."""
        headers = {"Content-Type": "application/json"}
        if self.token and path != "/v3/auth/authenticate":
            headers["Authorization"] = self.token
        try:
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace").partition("\n")[0]
        except BaseException:
            connection.close()
            raise
        self.connection = connection
        try:
            said = parse_json(text)  # a stream, that of keepalive, has its one result on the first line
        except ValueError:
            said = None
        # A proxy in between answers with anything.
        found: Json = said if isinstance(said, dict) else {"error": text or answer.reason}
        if answer.status != 200 or "error" in found:
            error = found.get("error") or found.get("message") or answer.reason  # 3.6 has no `error`
            raise EtcdError(error["message"] if isinstance(error, dict) else str(error), answer.status)
        return dict(found.get("result", found))


def tls_context(files: TlsFiles) -> Any:
    """Return how to speak TLS with etcd. Raises OSError for files that cannot be read."""
    import ssl

    for path in (files.ca, files.cert, files.key):
        if path is not None:
            with open(path, "rb"):
                pass  # OpenSSL does not say which of the files is missing
    context = ssl.create_default_context(cafile=files.ca)
    if files.cert:
        context.load_cert_chain(files.cert, files.key)
    return context


def text64(text: str) -> str:
    """Return text as etcd's gateway wants keys and values."""
    return binascii.b2a_base64(text.encode(), newline=False).decode()


def of64(text: str) -> str:
    """Return the text that a key or value of etcd's gateway holds."""
    return binascii.a2b_base64(text).decode()


class Quorum:
    """Whether etcd has lost its quorum, so that no lease can end there: then no processes have to end here either.

    Where this host alone is cut off, the others may have a quorum. So of most members it must be known, twice and one
    second apart, that they follow no leader: they say so, or, if at least one of them says so, their hosts refuse to be
    called (a firewall may refuse, but then none says so). Only members that are reached at the addresses of the spec
    count. When a leader is elected again, it gives all leases their whole time once more (etcd's lessor.Promote).
    """

    AGAIN = 60  # rounds after which the members are asked for anew

    def __init__(self, etcd: Etcd) -> None:
        self.etcd = etcd
        self.members: List[Optional[str]] = []  # where they are called, as far as the spec says
        self.left = 0  # rounds until they are asked for
        self.since: Optional[float] = None
        self.rounds = 0

    def note_answer(self) -> None:
        """Note that it answers, and which members it has."""
        self.since, self.rounds = None, 0
        if self.left > 0:
            self.left -= 1
            return
        with contextlib.suppress(EtcdError):
            found = self.etcd.call("/v3/cluster/member/list").get("members", [])
            voters = [member for member in found if not member.get("isLearner")]
            self.members = [self.address_of(member) for member in voters]
            if all(member.get("clientURLs") for member in voters):  # else one has not run yet, and so has not said them
                self.left = self.AGAIN

    def address_of(self, member: Json) -> Optional[str]:
        """Return the endpoint of the spec that a member says is its own, None if there is none."""
        own = [str(url).partition("://")[2].rstrip("/") for url in member.get("clientURLs", ())]
        return next((url for url in own if url in self.etcd.endpoints), None)

    def paused(self, now: float) -> Optional[float]:
        """Return a time at which leases certainly did not run out, None if there is none."""
        answers = [self.follows(member) for member in self.members if member is not None]
        leaderless, refused = answers.count("nobody"), answers.count("refused")
        if not leaderless or 2 * (leaderless + refused) <= len(self.members):
            self.since, self.rounds = None, 0
            return None
        self.rounds += 1
        before, self.since = self.since, now
        return before if self.rounds >= 2 else None

    def follows(self, member: str) -> str:
        """Return whether a member follows `somebody` or `nobody`, or its host has `refused` the call; or that it is `silent`."""
        try:
            return "somebody" if self.etcd.leader(member) else "nobody"
        except EtcdError as error:
            return "refused" if isinstance(error.__cause__, ConnectionRefusedError) else "silent"
