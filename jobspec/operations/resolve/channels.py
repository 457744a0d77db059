"""The channels of a job: what `notify` of its spec says, or the user's configuration, with the values of the secrets."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobctl.jobspec.deploy.store.login import user_name
from jobctl.jobspec.operations.errors import InvalidConfig, Refused
from jobctl.jobspec.operations.reporter import SILENT
from jobctl.jobspec.operations.resolve.settings import read_config
from jobctl.jobspec.records import dataclass

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.model.notification import Channel
    from jobctl.jobspec.operations.reporter import Reporter
    from jobctl.jobspec.operations.resolve.job import Compiled
    from jobctl.jobspec.spec.model import Secret, Spec
    from jobctl.jobspec.spec.parts.notify import Email, Notify, SecretReference
    from jobctl.jobspec.spec.user_config import UserConfig

HINT = "export it, or name a file: `webhook: {file: PATH}`; `notify: []` in the spec tells nobody"


def channels_of(compiled: Compiled, environ: Mapping[str, str], reporter: Reporter) -> tuple[Channel, ...]:
    """Return the channels of a job. Raises Refused if a secret of the spec cannot be read."""
    return channels_in_spec(compiled.spec, compiled.directory, environ, reporter)


def channels_in_spec(
    spec: Spec, directory: Path, environ: Mapping[str, str], reporter: Reporter
) -> tuple[Channel, ...]:
    """Return the channels of a spec in `directory`: those of the configuration if it has none. Raises Refused likewise."""
    if spec.notify is None:
        return channels_in_config(environ, reporter)
    resolver = _Resolver(directory, environ, {secret.name: secret for secret in spec.secrets})
    return _joined(resolver.channel(one) for one in spec.notify)


def channels_in_config(environ: Mapping[str, str], reporter: Reporter) -> tuple[Channel, ...]:
    """Return the channels of the user's configuration.

    It is for all jobs, so a secret of it that cannot be read keeps no job from starting: the user is warned.
    """
    config = _config(environ, reporter)
    if config is None or config.notify is None:
        return ()
    resolver, found = _Resolver(config.path.parent, environ, {}), []
    for one in config.notify.items:
        if one.from_hosts:
            place = f"{config.path}:{config.notify.line}"
            reporter.warn(f"{place}: `from_hosts` has no effect in the configuration: write the item into the spec")
            one = one.model_copy(update={"from_hosts": False})
        try:
            found.append(resolver.channel(one))
        except Refused as missing:
            reporter.warn(
                f"{config.path}:{config.notify.line}: {missing}; this item of `notify` has no effect for this job"
            )
    return _joined(found)


def _config(environ: Mapping[str, str], reporter: Reporter) -> UserConfig | None:
    """Return the user's configuration; what is wrong with it blocks no job, either."""
    try:
        return read_config(environ)
    except InvalidConfig as invalid:
        reporter.warn(f"`notify` of the configuration has no effect: {invalid}")
        return None


def environ_of_job(compiled: Compiled, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that processes of a job on this machine get: without what only `notify` is to know."""
    ours = notify_variables(compiled.spec, environ)
    return {name: value for name, value in environ.items() if name not in ours}


def notify_variables(spec: Spec, environ: Mapping[str, str]) -> set[str]:
    """Return the variables whose values only `notify` uses, that of the spec or of the configuration."""
    config = _config(environ, SILENT) if spec.notify is None else None
    items = spec.notify or (config.notify.items if config and config.notify else ())
    sources = [one.webhook or (one.email.smtp.password if one.email and one.email.smtp else None) for one in items]
    theirs = {secret.env or secret.name for secret in spec.secrets}
    return {source.env for source in sources if source is not None and source.env is not None} - theirs


def withheld_variables(spec: Spec, environ: Mapping[str, str]) -> set[str]:
    """Return the variables of `up`'s environment that a scheduler must not keep: the values of secrets and of `notify`."""
    return {secret.env or secret.name for secret in spec.secrets} | notify_variables(spec, environ)


def _joined(channels: Iterable[Channel]) -> tuple[Channel, ...]:
    """Return the channels, each once: several items may tell the same people of different events.

    Mail that goes another way is another channel, though it goes to the same people.
    """
    found: dict[str, Channel] = {}
    for channel in channels:
        known = found.get(channel.key, channel)
        if channel.kind == "email" and channel.how != known.how:
            channel = replace(channel, key=f"{channel.key} {_way(channel.how)}")
            known = found.get(channel.key, channel)
        found[channel.key] = replace(channel, on=channel.on | known.on, how={**known.how, **channel.how})
    return tuple(found.values())


def _way(how: Mapping[str, Any]) -> str:
    """Return in words which way mail goes."""
    smtp = how["smtp"]
    return f"from {how['sender']}{f' through {_server(smtp)}' if smtp else ''}"


def _server(smtp: Mapping[str, Any]) -> str:
    user, port = smtp["user"], smtp["port"]
    return f"{f'{user} at ' if user else ''}{smtp['host']}{f':{port}' if port else ''}"


@dataclass(frozen=True, slots=True)
class _Resolver:
    """Reads the secrets that items of `notify` name: those of the spec as it says, others from the environment or a file."""

    directory: Path
    environ: Mapping[str, str]
    secrets: Mapping[str, Secret]

    def channel(self, one: Notify) -> Channel:
        from jobctl.jobspec.deploy.model.notification import Channel

        on = frozenset(map(str, one.on))
        if one.webhook is not None:
            url = self._url(one.webhook)
            how: dict[str, Any] = {"url": url, "format": one.format}
            if one.from_hosts:
                how["from_hosts"] = True
            return Channel(f"webhook {_name(one.webhook)} ({one.format})", on, "webhook", how)
        if one.email is not None:
            return Channel(f"mail to {', '.join(one.email.to)}", on, "email", self._mail(one.email))
        how = {"argv": list(one.command), "directory": str(self.directory)}
        digest = sha256("\0".join(one.command).encode()).hexdigest()[
            :6
        ]  # its arguments may hold what nobody should see
        return Channel(f"command {one.command[0]} ({digest})", on, "command", how)

    def _url(self, source: SecretReference) -> str:
        from jobctl.jobspec.launcher.telling.webhook import is_url

        url = self._value(source).strip()
        if not is_url(url):
            message = f"`notify`: the value of `{_name(source)}` is not the URL of a webhook"
            raise Refused(message, "it has to begin with https:// or http://, and has no blank")
        return url

    def _mail(self, one: Email) -> dict[str, Any]:
        user = one.smtp.user if one.smtp and one.smtp.user and "@" in one.smtp.user else None
        sender = one.sender or user or f"{user_name()}@{socket.gethostname()}"
        smtp = one.smtp and {
            "host": one.smtp.host,
            "port": one.smtp.port,
            "security": one.smtp.security,
            "user": one.smtp.user,
            "password": self._value(one.smtp.password) if one.smtp.password else None,
        }
        return {"to": list(one.to), "sender": sender, "smtp": smtp}

    def _value(self, source: SecretReference) -> str:
        from jobctl.jobspec.deploy.store.secrets import SecretMissing, read_secrets
        from jobctl.jobspec.spec.model import Secret

        name = _name(source)
        secret = self.secrets.get(name) or Secret(name="NOTIFY", env=source.env, file=source.file)
        try:
            return read_secrets([secret], self.directory, self.environ)[secret.name]
        except SecretMissing as missing:
            raise Refused(str(missing).replace("`NOTIFY`", f"`{name}` of `notify`"), HINT) from missing


def _name(source: SecretReference) -> str:
    return source.env or source.file or ""
