"""The cluster, the user and the namespace that a kubeconfig names, as `kubectl` takes them where the official client does not."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from jobctl.jobspec.deploy.kubernetes.problems import ConfigError


def is_there(environ: Mapping[str, str]) -> bool:
    """Say whether the user has a kubeconfig."""
    default = os.path.join(environ.get("HOME", ""), ".kube", "config")
    return bool(environ.get("KUBECONFIG")) or os.path.exists(default)


def load(configuration: Any, files: str, wanted: str | None) -> tuple[str, str]:
    """Tell the client's `configuration` of the `wanted` context of a kubeconfig, otherwise of its current one.

    Return the context's name and its namespace. Raises ConfigError, and whatever the client raises for what is no kubeconfig.
    """
    from kubernetes import config
    from kubernetes.config.kube_config import KubeConfigMerger

    merger = KubeConfigMerger(files)
    if merger.config is None:
        raise ValueError(f"there is no {files}")
    contexts = {one.value["name"]: one.value.get("context") or {} for one in merger.config["contexts"].value}
    chosen = wanted or _current(merger)
    if chosen not in contexts:
        why = f"no context `{chosen}`" if chosen else "no current context"
        raise ConfigError(f"the kubeconfig has {why}", f"`--context` chooses one: it has {', '.join(contexts) or 'none'}")
    with _failures_told() as told:
        config.load_kube_config(config_file=files, context=chosen, client_configuration=configuration)
    if told and not (configuration.api_key or configuration.cert_file):
        hint = "log in again, as for `kubectl`, which asks the same plugin"
        # In a terminal a plugin tells the user itself, and the client trips over what it has not read.
        why = "its plugin failed" if "NoneType" in told[-1] else told[-1]
        raise ConfigError(f"context `{chosen}` of the kubeconfig gives no credentials: {why}", hint)
    return chosen, contexts[chosen].get("namespace") or "default"


def _current(merger: Any) -> str | None:
    """Return the current context: of several files, that of the first that names one, where the client takes the last.

    https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/#merging-kubeconfig-files
    """
    return next((one["current-context"] for one in merger.config_files.values() if one.get("current-context")), None)


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
