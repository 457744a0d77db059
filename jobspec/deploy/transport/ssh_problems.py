"""What goes wrong on the way into a host, each with what a user does about it."""

from __future__ import annotations

import errno
import shlex
import socket
from collections.abc import Callable

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.spec.hosts import Host

QUOTED = 200  # characters of what a login prints, at most


def explain(host: Host, error: Exception, what: str) -> HostError | None:
    """Return what an exception of paramiko or of a socket means, None for what is a bug."""
    import paramiko

    where = f"{host.user}@{host.name}" if host.user else host.name
    try_it = f"try `ssh {shlex.quote(where)}`"

    def found(code: str, message: str, hint: str) -> HostError:
        return HostError(host.name, code, message, hint)

    def no_route() -> HostError:
        return found(
            "no-route",
            "no route to its address",
            f"is the address right, the host up, and does a firewall or VPN let you through? {try_it}",
        )

    kinds: tuple[tuple[type[Exception], Callable[[], HostError]], ...] = (
        (
            paramiko.BadHostKeyException,
            lambda: found(
                "host-key-changed",
                "its host key has changed: the host was installed anew, or somebody is in between",
                f"if it was installed anew: `ssh-keygen -R {shlex.quote(host.name)}`, then connect once with ssh",
            ),
        ),
        (
            paramiko.PasswordRequiredException,
            lambda: found("key-locked", "the private key has a passphrase", "`ssh-add` it to an agent"),
        ),
        (
            paramiko.BadAuthenticationType,  # an AuthenticationException, too
            lambda: found(
                "wants-password",
                "it lets nobody in by a key, and jobctl uses no passwords",
                f"let sshd take keys (`PubkeyAuthentication yes`), then `ssh-copy-id {shlex.quote(where)}`",
            ),
        ),
        (
            paramiko.AuthenticationException,
            lambda: found(
                "key-refused",
                "it refuses the keys that were offered",
                f"{try_it}; name the key with `identity=` in the hosts file or IdentityFile, or add it to the agent"
                " (passwords are not used)",
            ),
        ),
        (
            paramiko.ssh_exception.NoValidConnectionsError,
            lambda: (
                found("connection-refused", "nothing listens at its SSH port", f"is sshd running there? {try_it}")
                if _refused(error)
                else no_route()
            ),
        ),
        (
            paramiko.ChannelException,
            lambda: found("too-many-sessions", f"sshd gives no session: {error}", "see MaxSessions in sshd_config"),
        ),
        (
            socket.gaierror,
            lambda: found(
                "unknown-name", "its name cannot be resolved", "is it right? HostName in the SSH configuration"
            ),
        ),
        (
            TimeoutError,
            lambda: found("unreachable", "it does not answer", f"is it up, and the network between? {try_it}"),
        ),
        (EOFError, lambda: found("lost", f"the connection was lost while it was to {what}", try_it)),
    )
    for kind, build in kinds:
        if isinstance(error, kind):
            return build()
    if isinstance(error, paramiko.SSHException):
        return _ssh_exception(host, error, found, try_it)
    if isinstance(error, OSError) and error.filename:
        hint = "`identity=` in the hosts file or IdentityFile names a private key that you may read"
        return found("no-identity", f"{error.filename}: {error.strerror}", hint)
    if isinstance(error, OSError) and error.errno in _NO_ROUTE:
        return no_route()
    if isinstance(error, OSError):
        return found("unreachable", f"{error.strerror or error}", f"is it up, and the network between? {try_it}")
    return None


def _ssh_exception(host: Host, error: Exception, found: Callable[..., HostError], try_it: str) -> HostError:
    text = str(error)
    if "not found in known_hosts" in text:
        hint = f"compare it: `ssh {shlex.quote(host.name)}`, or `--accept-new-host-keys` to trust all new ones"
        result: HostError = found("host-key-unknown", "its host key is not known here", hint)
    elif (
        "negotiating session" in text
        or "existing session" in text
        or "banner" in text
        or "timed out" in text.lower()
        or "timeout" in text.lower()
    ):
        result = found("unreachable", "it accepts connections, and then says nothing", f"is it overloaded? {try_it}")
    elif "No authentication methods available" in text or "not a valid" in text:
        hint = "name one with `identity=` in the hosts file or IdentityFile, or start an agent; passwords are not used"
        result = found("key-refused", "there is no key to offer", hint)
    else:
        result = found("lost", text or type(error).__name__, try_it)
    return result


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
        f"its login ends before it runs a command, with exit code {code}{_printed(said)}",
        "a `.bashrc` that exits (or starts another shell), or a forced command, does that:"
        " put `case $- in *i*) ;; *) return ;; esac` at its top",
    )


def login_hangs(host: str, seconds: float, said: bytes) -> HostError:
    """Return the error for a login that runs no command."""
    return HostError(
        host,
        "silent",
        f"its login has run no command within {seconds:g} s{_printed(said)}",
        "look at what its `.bashrc` does: it may wait for somebody, for a network file system, or start another shell",
    )


def _printed(said: bytes) -> str:
    text = " ".join(said.decode("utf-8", "replace").split())
    shown = "".join(c if c.isprintable() else "?" for c in text[:QUOTED])
    return f"; it printed `{shown}`" if shown else ""
