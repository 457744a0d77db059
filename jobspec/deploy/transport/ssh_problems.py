"""What goes wrong on the way into a host, each with what a user does about it."""

from __future__ import annotations

import errno
import re
import shlex

from jobctl.jobspec.deploy.model.errors import DeployError, HostError, PortClosed
from jobctl.jobspec.deploy.transport.descriptors import RAISE_LIMIT
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.hosts import Host

NO_MORE_FILES = errno.EMFILE, errno.ENFILE
QUOTED = 200  # characters of what a login prints, at most


@dataclass(frozen=True, slots=True)
class Problem:
    """A code, what happened, and what a user does about it; both texts have places for words of the host's."""

    code: str
    message: str
    hint: str


_IS_IT_UP = "is it up, and the network between? {try_it}"
NO_ROUTE = Problem(
    "no-route",
    "no route to its address",
    "is the address right, the host up, and does a firewall or VPN let you through? {try_it}",
)
REFUSED = Problem("connection-refused", "nothing listens at its SSH port{port}", "is sshd running there? {try_it}")
UNREADABLE = Problem(
    "no-identity",
    "{file}: {reason}",
    "`identity=` in the hosts file or IdentityFile names a private key that you may read",
)
UNREACHABLE = Problem("unreachable", "{reason}", _IS_IT_UP)
FILES = Problem(
    "too-many-files",
    "this machine lets jobctl open no more files, which connections are too: {reason}",
    RAISE_LIMIT,
)
MUTE = Problem("unreachable", "it accepts connections, and then says nothing", "is it overloaded? {try_it}")
LOST = Problem("lost", "{reason}", "{try_it}")
ENDED = Problem("lost", "the connection was lost while it was to {what}", "{try_it}")

# By the name of an exception's class, so that nobody has to import Paramiko for it.
_PARAMIKO = "paramiko.ssh_exception."
_BY_CLASS = {
    f"{_PARAMIKO}BadHostKeyException": Problem(
        "host-key-changed",
        "its host key has changed: the host was reinstalled, or somebody is in between",
        "if it was reinstalled: `ssh-keygen -R {known_as}`, then connect once with ssh",
    ),
    f"{_PARAMIKO}PasswordRequiredException": Problem(
        "key-locked", "the private key has a passphrase", "`ssh-add` it to an agent"
    ),
    f"{_PARAMIKO}BadAuthenticationType": Problem(
        "wants-password",
        "it lets nobody in by a key, and jobctl uses no passwords",
        "let sshd take keys (`PubkeyAuthentication yes`), then `ssh-copy-id {login}`",
    ),
    f"{_PARAMIKO}AuthenticationException": Problem(
        "key-refused",
        "it refuses the keys that were offered",
        "{try_it}; name the key with `identity=` in the hosts file or IdentityFile, or add it to the agent"
        " (passwords are not used)",
    ),
    f"{_PARAMIKO}ChannelException": Problem(
        "too-many-sessions", "sshd gives no session: {error}", "see MaxSessions in sshd_config"
    ),
    f"{_PARAMIKO}ProxyCommandFailure": Problem("unreachable", "{error.error}", "{try_it}"),
    "socket.gaierror": Problem(
        "unknown-name", "its name cannot be resolved", "is it right? HostName in the SSH configuration"
    ),
    "builtins.TimeoutError": Problem("unreachable", "it does not answer", _IS_IT_UP),
    "builtins.EOFError": ENDED,
}

# What Paramiko tells only by the text of an SSHException; the first that fits.
_BY_TEXT = (
    (
        re.compile("not found in known_hosts"),
        Problem(
            "host-key-unknown",
            "its host key is not known here",
            "compare it: `ssh {login}`, or `--accept-new-host-keys` to trust all new ones",
        ),
    ),
    (
        re.compile("negotiating session|existing session|banner|(?i:timed out|timeout)"),
        MUTE,
    ),
    (
        re.compile("No authentication methods available|not a valid"),
        Problem(
            "key-refused",
            "there is no key to offer",
            "name one with `identity=` in the hosts file or IdentityFile, or start an agent; passwords are not used",
        ),
    ),
    # What Paramiko says to all but the first of those that a connection ends for.
    (re.compile("Unable to open channel|SSH session not active"), ENDED),
    (re.compile(""), LOST),
)


def ssh_login(host: Host) -> str:
    """Return what follows `ssh` on the way into a host. Its port is in no SSH configuration: without it, ssh goes elsewhere."""
    port = f"-p {host.port} " if host.port else ""
    return port + shlex.quote(f"{host.user}@{host.name}" if host.user else host.name)


def explain(host: Host, error: Exception, what: str) -> HostError | None:
    """Return what an exception of Paramiko or of a socket means, None for what is a bug."""
    problem = _problem_of(error)
    if problem is None:
        return None
    words = {
        "known_as": shlex.quote(f"[{host.name}]:{host.port}" if host.port not in (None, 22) else host.name),
        "login": ssh_login(host),
        "port": f" {host.port}" if host.port else "",
        "try_it": f"try `ssh {ssh_login(host)}`",
        "what": what,
        "error": error,
        "file": getattr(error, "filename", None),
        "reason": getattr(error, "strerror", None) or str(error) or type(error).__name__,
    }
    return HostError(host.name, problem.code, problem.message.format(**words), problem.hint.format(**words))


def _problem_of(error: Exception) -> Problem | None:
    classes = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__]
    if f"{_PARAMIKO}NoValidConnectionsError" in classes:
        return REFUSED if _refused(error) else NO_ROUTE
    if f"{_PARAMIKO}AuthenticationException" in classes and "timeout" in str(error):
        return MUTE
    known = next((_BY_CLASS[name] for name in classes if name in _BY_CLASS), None)
    if known is not None:
        return known
    if f"{_PARAMIKO}SSHException" in classes:
        return next(problem for pattern, problem in _BY_TEXT if pattern.search(str(error)))
    if not isinstance(error, OSError):
        return None
    if error.errno in NO_MORE_FILES:
        return FILES
    if error.filename:
        return UNREADABLE
    return NO_ROUTE if error.errno in _NO_ROUTE else UNREACHABLE


_NO_ROUTE = (errno.EHOSTUNREACH, errno.ENETUNREACH)


def _refused(error: Exception) -> bool:
    """Say whether one of the addresses that were tried answered, and refused the connection."""
    tried: dict[object, OSError] = getattr(error, "errors", {})
    return not tried or any(one.errno == errno.ECONNREFUSED for one in tried.values())


def login_ended(host: str, code: int, said: bytes) -> HostError:
    """Return the error for a login that ended before it ran a command."""
    return HostError(
        host,
        "login-ends",
        f"its login ends before it runs a command, with exit code {code}{printed(said)}",
        "a `.bashrc` that exits (or starts another shell), or a forced command, does that:"
        " put `case $- in *i*) ;; *) return ;; esac` at its top",
    )


def login_hangs(host: str, seconds: float, said: bytes) -> HostError:
    """Return the error for a login that runs no command."""
    return HostError(
        host,
        "silent",
        f"its login has run no command within {seconds:g} s{printed(said)}",
        "look at what its `.bashrc` does: it may wait for somebody, for a network file system, or start another shell",
    )


def bad_config(host: str, error: Exception) -> HostError:
    """Return the error for a host of which an SSH configuration that cannot be read may say something."""
    why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
    hint = f"correct it; `ssh -G {shlex.quote(host)}` says what ssh reads"
    return HostError(host, "bad-ssh-config", f"the SSH configuration cannot be read: {why}", hint)


def host_key_unreadable(host: str, place: str, *, whole: bool = False) -> HostError:
    """Return the error for a host whose key may be known in a line that cannot be read; `place` is FILE:LINE.

    Of a `whole` FILE no line can be read.
    """
    may = "have its line" if whole else "be its line"
    message = f"its host key is not known here: {place}, which may {may}, cannot be read"
    line = "correct that line, or remove it and compare the key as a new one"
    return HostError(
        host, "host-key-unknown", message, f"`ls -l {shlex.quote(place)}` shows who may read it" if whole else line
    )


def host_key_unwritten(host: str, file: str, reason: str) -> HostError:
    """Return the error for a host whose new key would be trusted, but not known the next time."""
    message = f"its new host key cannot be written into {file}: {reason}"
    hint = "add the key there, or name a writable file with UserKnownHostsFile in the SSH configuration"
    return HostError(host, "host-key-unknown", message, hint)


def host_key_revoked(host: str) -> HostError:
    """Return the error for a host that shows a key that nobody is to trust any more."""
    message = "a line with `@revoked` in a file of known hosts has its host key, which nobody may trust any more"
    return HostError(host, "host-key-revoked", message, "the host needs a new key; or somebody is in between")


_PROHIBITED = 1  # SSH_OPEN_ADMINISTRATIVELY_PROHIBITED of RFC 4254, 5.1


def port_refused(host: str, place: str, code: int) -> DeployError:
    """Return the error for a TCP port that sshd does not connect us to; `code` is sshd's reason."""
    if code == _PROHIBITED:
        message = f"its sshd does not forward connections to {place}"
        return HostError(host, "forwarding-forbidden", message, "see AllowTcpForwarding and PermitOpen in sshd_config")
    return PortClosed(f"{host}: nothing listens at {place}")


def not_through(host: str, jump: str, reason: str) -> HostError:
    """Return the error for a host that its jump host does not connect us to; `reason` is what sshd there says."""
    hint = f"is {host} up, and does sshd on {jump} forward (AllowTcpForwarding)? try `ssh {shlex.quote(host)}`"
    return HostError(host, "unreachable", f"its jump host {jump} cannot connect to it: {reason}", hint)


def printed(said: bytes) -> str:
    """Return what was printed as the end of a sentence that a terminal can show, "" for nothing."""
    text = " ".join(said.decode("utf-8", "replace").split())
    shown = "".join(c if c.isprintable() else "?" for c in text[:QUOTED])
    return f"; it printed `{shown}`" if shown else ""
