"""The cluster, the user and the namespace that a kubeconfig names, as `kubectl` takes them where the official client does not."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from jobctl.jobspec.deploy.kubernetes.problems import ConfigError


def is_there(environ: Mapping[str, str]) -> bool:
    """Say whether the user has a kubeconfig."""
    default = os.path.join(environ.get("HOME", ""), ".kube", "config")
    return bool(environ.get("KUBECONFIG")) or os.path.exists(default)


def load(configuration: Any, files: str, wanted: str | None) -> tuple[str, str]:
    """Tell the client's `configuration` of the `wanted` context of a kubeconfig, otherwise of its current one.

    Return the context's name and its namespace. Raises ConfigError, and whatever the client raises for what is no kubeconfig.
    """
    import urllib3
    from kubernetes import config
    from kubernetes.config.kube_config import KubeConfigMerger

    merger = KubeConfigMerger(files)
    if merger.config is None:
        raise ValueError(f"there is no {files}")
    contexts = {one.value["name"]: one.value.get("context") or {} for one in merger.config["contexts"].value}
    chosen = wanted or _current(merger)
    if chosen not in contexts:
        why = f"no context `{chosen}`" if chosen else "no current context"
        raise ConfigError(
            f"the kubeconfig has {why}", f"`--context` chooses one: it has {', '.join(contexts) or 'none'}"
        )
    user = contexts[chosen].get("user")
    _refuse_another_identity(chosen, _said_of(merger.config, user)[0])
    with _failures_told() as told:
        config.load_kube_config(config_file=files, context=chosen, client_configuration=configuration)
    if told and not (configuration.api_key or configuration.cert_file):
        hint = "log in again, as for `kubectl`, which asks the same plugin"
        # In a terminal a plugin tells the user itself, and the client trips over what it has not read.
        why = "its plugin failed" if "NoneType" in told[-1] else told[-1]
        raise ConfigError(f"context `{chosen}` of the kubeconfig gives no credentials: {why}", hint)
    if not configuration.verify_ssl:  # the user has said so, and need not be told with each command
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    if configuration.refresh_api_key_hook is not None:
        configuration.refresh_api_key_hook = partial(_refresh_quietly, configuration.refresh_api_key_hook)
    file = _token_file(merger.config, user)
    if file is not None:
        configuration.refresh_api_key_hook = partial(_read_token, file)
    return chosen, contexts[chosen].get("namespace") or "default"


def _current(merger: Any) -> str:
    """Return the current context, empty if there is none. Of several files, the first names it; the client takes the last.

    https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/#merging-kubeconfig-files
    """
    found = (one.get("current-context") for one in merger.config_files.values())
    return str(next(filter(None, found), ""))


def proxy_login(proxy: str | None) -> dict[str, str] | None:
    """Return the headers that log in to a proxy whose URL has a user; the client leaves that out. SOCKS has no headers."""
    from urllib3.util import make_headers

    parts = urlsplit(proxy or "")
    if parts.username is None or parts.scheme not in ("http", "https"):
        return None
    login = unquote_to_bytes(f"{parts.username}:{parts.password or ''}")
    return dict(make_headers(proxy_basic_auth=login.decode("latin-1")))  # which makes these bytes of it again


def _refuse_another_identity(context: str, said: Mapping[str, Any]) -> None:
    """Raise ConfigError where the user is to act as another: the client does not tell the server, and all rights would hold.

    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
    """
    named = [key for key in ("as", "as-uid", "as-groups", "as-user-extra") if said.get(key)]
    if named:
        raise ConfigError(
            f"context `{context}` of the kubeconfig acts as another user (`{named[0]}`), which jobctl cannot do",
            "`--context` chooses one whose user has the rights that the job needs, and no more",
        )


def _said_of(merged: Any, user: str | None) -> tuple[Mapping[str, Any], Path]:
    """Return what the kubeconfig says of a user, and the file that says it."""
    for node in merged["users"].value if user else ():
        if node.value["name"] == user:
            return node.value.get("user") or {}, Path(node.path)
    return {}, Path()


def _token_file(merged: Any, user: str | None) -> Path | None:
    """Return the file that has a user's token, None if the kubeconfig itself has it, or nobody has."""
    said, file = _said_of(merged, user)
    named = said.get("tokenFile")
    return file.absolute().parent / str(named) if named and not said.get("token") else None


def _read_token(file: Path, configuration: Any) -> None:
    """Read a token again, for each request: it ends within an hour or so, and somebody puts the next one into its file."""
    with suppress(OSError, ValueError):  # the last one that could be read may still do
        if token := file.read_text(encoding="utf-8").strip():
            configuration.api_key["BearerToken"] = f"Bearer {token}"


def _refresh_quietly(refresh: Callable[[Any], None], configuration: Any) -> None:
    """Have the client ask for new credentials, for each request, and log nothing where there are none: the server tells."""
    with _failures_told():
        refresh(configuration)
    configuration.refresh_api_key_hook = partial(_refresh_quietly, refresh)  # it has put its own there again


@contextmanager
def _failures_told() -> Iterator[list[str]]:
    """Collect the errors that the client only logs, such as those of a plugin: it would go on as nobody (`system:anonymous`)."""
    told: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        yield told
    finally:
        logging.getLogger().removeHandler(handler)
