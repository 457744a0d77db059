"""The cluster, the user and the namespace that a kubeconfig names, as `kubectl` takes them where the official client does not."""

from __future__ import annotations

import os
from collections.abc import Mapping
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
    config.load_kube_config(config_file=files, context=chosen, client_configuration=configuration)
    return chosen, contexts[chosen].get("namespace") or "default"


def _current(merger: Any) -> str | None:
    """Return the current context: of several files, that of the first that names one, where the client takes the last.

    https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/#merging-kubeconfig-files
    """
    return next((one["current-context"] for one in merger.config_files.values() if one.get("current-context")), None)
