"""Builds with BuildKit, which engines offer to their command-line client only: this machine's `docker` builds.

It reaches the engine, wherever that is, through a socket in a folder that only the user may enter. The context goes to
its input, the values of arguments into its environment. It asks for credentials where the user's own are.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from jobctl.jobspec.deploy.host.engine import Engine
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.transport.descriptors import for_child
from jobctl.jobspec.deploy.transport.relay import relay
from jobctl.jobspec.plan.sent import Build

BUILT_IN = range(20, 23)  # versions of the client that have BuildKit in them; later ones need the plugin buildx
# Arguments of these names would change how the client itself works, so it cannot have them as variables.
_OWN = re.compile(r"PATH|HOME|SSH_AUTH_SOCK|(DOCKER|BUILDX|BUILDKIT|LD|XDG)_.*|(?i:(https?|no)_proxy)")
_CREDENTIALS = re.compile(r"secret|pass|credential|token|auth(?!_sock)|key|headers", re.IGNORECASE)
_LOGIN = re.compile(r"(^|://)[^/\s]*@")  # in a URL, or in a proxy without `http://`

# The path of a socket has 107 bytes at most: below this folder there are one of a random name, and the socket.
LONGEST_FOLDER = 75
_DIGEST = re.compile(r"#\d+ sha256:[0-9a-f]+")  # a line that tells people nothing


def builder() -> tuple[str, ...] | None:
    """Return how this machine's `docker` builds with BuildKit, None if it cannot."""
    if _answers("docker", "buildx", "version") is not None:
        return ("docker", "buildx", "build", "--load")
    version = re.search(r"version (\d+)\.", _answers("docker", "--version") or "")
    return ("docker", "build") if version and int(version[1]) in BUILT_IN else None


def _answers(*argv: str) -> str | None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, preexec_fn=for_child())
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def lines_of(
    engine: Engine, command: Sequence[str], build: Build, name: str, context: Iterable[bytes]
) -> Iterator[str]:
    """Build an image, of which the context is a tar file and the Dockerfile in it `name`; yield what is printed.

    Raises subprocess.CalledProcessError if the build fails: the last lines say why. Raises HostError for an argument that
    the client cannot be given without showing a secret.
    """
    argv = [*command, "--progress", "plain", "--network", "host", "--tag", build.image, "--file", name]
    argv += ["--target", build.target] if build.target else []
    for key, value in build.args:
        if _OWN.fullmatch(key) and (_CREDENTIALS.search(key) or _LOGIN.search(value)):
            raise _shows_secret(engine, build, key)
        argv += ["--build-arg", f"{key}={value}" if _OWN.fullmatch(key) else key]
    given = {key: value for key, value in build.args if not _OWN.fullmatch(key)}
    with _listening(engine) as url:
        environ = _environ(url) | given
        yield from _printed([*argv, "-"], environ, context)


def _shows_secret(engine: Engine, build: Build, key: str) -> HostError:
    message = (
        f"cannot build `{build.image}`: the value of `{key}` looks like credentials, and all users of this machine could"
        " read it in the arguments of `docker`"
    )
    hint = "give the argument another name, as `docker` itself heeds this one"
    if key.lower().endswith("_proxy"):
        hint = "name the proxy in `proxies` of `~/.docker/config.json`, from where `docker` gives it to builds"
    return HostError(engine.transport.host, "build-failed", message, hint)


def _environ(url: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("DOCKER_CONTEXT", "DOCKER_TLS_VERIFY")}
    return {**kept, "DOCKER_HOST": url, "DOCKER_BUILDKIT": "1", "BUILDX_BUILDER": "default"}


def _printed(argv: Sequence[str], environ: Mapping[str, str], context: Iterable[bytes]) -> Iterator[str]:
    """Run the client with the context as its input, and yield its lines. Raises subprocess.CalledProcessError.

    If that failed because the context broke off, it raises the context's DeployError.
    """
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(argv, env=environ, preexec_fn=for_child(), **streams) as process:  # type: ignore[call-overload]
        broken: list[DeployError] = []
        feeding = threading.Thread(target=_feed, args=(process, context, broken), daemon=True)
        feeding.start()
        try:
            for line in process.stdout:
                text = line.decode("utf-8", "replace").rstrip()
                if not _DIGEST.fullmatch(text):
                    yield text
        except BaseException:
            process.terminate()
            raise
        feeding.join()
    if process.returncode and broken:
        raise broken[0]
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, argv[:2])


def _feed(process: subprocess.Popen[bytes], context: Iterable[bytes], broken: list[DeployError]) -> None:
    """Write the context to the client's input, for as long as it reads; why the context broke off goes into `broken`."""
    assert process.stdin is not None
    with suppress(OSError), process.stdin:
        try:
            for piece in context:
                process.stdin.write(piece)
        except DeployError as error:  # the client misses the rest
            broken.append(error)


@contextmanager
def _listening(engine: Engine) -> Iterator[str]:
    """Yield the address of a socket of this machine whose connections are passed on to an engine."""
    top = tempfile.gettempdir()
    top = top if len(os.fsencode(top)) < LONGEST_FOLDER else "/tmp"
    with tempfile.TemporaryDirectory(prefix="jobctl-", dir=top) as folder, socket.socket(socket.AF_UNIX) as listener:
        path = Path(folder) / "engine.sock"
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=_accept, args=(listener, engine), daemon=True).start()
        try:
            yield f"unix://{path}"
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, engine: Engine) -> None:
    with suppress(OSError):  # nobody listens any more
        while True:
            ours, _ = listener.accept()
            threading.Thread(target=_pass_on, args=(ours, engine), daemon=True).start()


def _pass_on(ours: socket.socket, engine: Engine) -> None:
    with suppress(OSError, HostError), ours:
        its = engine.dial()
        its.settimeout(None)
        relay(ours, its)
