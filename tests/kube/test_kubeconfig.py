"""Kubeconfigs: which cluster they name, and with which credentials."""

from __future__ import annotations

import logging
import os
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("kubernetes")
import yaml
from urllib3.exceptions import InsecureRequestWarning

from jobctl.jobspec.deploy.kubernetes.api import Api, connect
from jobctl.jobspec.deploy.kubernetes.kubeconfig import proxy_login
from jobctl.jobspec.deploy.kubernetes.problems import ConfigError
from tests.kube.handler import TOKEN
from tests.kube.server import ApiServer


def written(path: Path, name: str, user: dict[str, Any], **more: Any) -> Path:
    """Write a kubeconfig with one context; `more` is what else its cluster is said to have."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}.example:6443", **more}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"of-{name}"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


def connected(*files: Path) -> Api:
    return connect(None, None, {"KUBECONFIG": ":".join(map(str, files))})


def test_of_several_files_the_first_names_the_current_context(tmp_path: Path) -> None:
    """As for `kubectl`: a job must not come up in another cluster than the one that it talks to."""
    first = written(tmp_path / "first", "lab", {"token": "a"})
    second = written(tmp_path / "second", "production", {"token": "b"})
    found = connected(first, second)
    assert (found.context, found.namespace) == ("lab", "of-lab")
    assert found.client.configuration.host == "https://lab.example:6443"
    assert found.headers()["authorization"] == "Bearer a"
    first.write_text(first.read_text().replace("current-context: lab", "current-context: ''"))
    assert connected(first, second).context == "production"


@pytest.mark.parametrize("key", ["as", "as-uid", "as-groups", "as-user-extra"])
def test_a_user_who_acts_as_another_is_refused(tmp_path: Path, key: str) -> None:
    """`kubectl` would have the other's rights only; the client would have all of the user's own."""
    said = {"as-groups": ["viewers"], "as-user-extra": {"reason": ["a look"]}}.get(key, "ada")
    with pytest.raises(ConfigError) as raised:
        connected(written(tmp_path / "config", "lab", {"token": "a", key: said}))
    assert raised.value.message == (
        f"context `lab` of the kubeconfig acts as another user (`{key}`), which jobctl cannot do"
    )


def plugin(script: str) -> dict[str, Any]:
    """Return a user whose credentials a plugin gives: a shell script."""
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": "sh", "args": ["-c", script], "interactiveMode": "Never"}}


def test_a_plugin_that_fails_is_named_and_nobody_is_asked_without_its_credentials(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Else the cluster would say that somebody without a name lacks a right."""
    file = written(tmp_path / "config", "lab", plugin("echo your session has expired >&2; exit 3"))
    with pytest.raises(ConfigError) as raised:
        connected(file)
    assert raised.value.message == (
        "context `lab` of the kubeconfig gives no credentials: exec: process returned 3. your session has expired"
    )
    assert capfd.readouterr().err == ""


def test_in_a_terminal_a_plugin_speaks_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "config", "lab", plugin("echo your session has expired >&2; exit 3"))
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        with pytest.raises(ConfigError) as raised:
            connected(file)
    assert raised.value.message == "context `lab` of the kubeconfig gives no credentials: its plugin failed"
    assert capfd.readouterr().err == "your session has expired\n"


def test_a_plugin_gives_the_token(tmp_path: Path) -> None:
    said = '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t"}}'
    found = connected(written(tmp_path / "config", "lab", plugin(f"echo '{said}'")))
    assert found.headers()["authorization"] == "Bearer t"


def test_a_login_that_ends_later_is_no_line_for_each_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The server says that the old token is refused. Who logs in again meanwhile, goes on."""
    status = '{"token": "TOKEN", "expirationTimestamp": "2026-01-01T00:00:00Z"}'
    said = f'{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {status}}}'
    script = f"cat {tmp_path}/said || exit 3"
    (tmp_path / "said").write_text(said.replace("TOKEN", "first"))
    found = connected(written(tmp_path / "config", "lab", plugin(script)))
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    (tmp_path / "said").unlink()
    assert [found.headers()["authorization"] for _ in range(2)] == ["Bearer first", "Bearer first"]
    (tmp_path / "said").write_text(said.replace("TOKEN", "second"))
    assert found.headers()["authorization"] == "Bearer second"
    assert capfd.readouterr().err == ""


def test_a_token_in_a_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is replaced before it ends, and `logs -f` and `wait` go on for longer than that."""
    folder = tmp_path / "kube"
    folder.mkdir()
    token = folder / "token"
    token.write_text("first\n")
    found = connected(written(folder / "config", "lab", {"tokenFile": "token"}))
    monkeypatch.chdir("/")
    assert found.headers()["authorization"] == "Bearer first"
    token.write_text("second\n")
    assert found.headers()["authorization"] == "Bearer second"
    for broken in ("", None):
        token.unlink() if broken is None else token.write_text(broken)
        assert found.headers()["authorization"] == "Bearer second"


def test_a_proxy_whose_url_has_a_user_is_told_who_asks(tmp_path: Path) -> None:
    """As `kubectl` tells it; commands in pods go through the proxy as well, and take the same headers."""
    proxy = {"proxy-url": "http://ada:s%40cret@proxy.example:3128"}
    found = connected(written(tmp_path / "config", "lab", {"token": "a"}, **proxy))
    told = {"proxy-authorization": "Basic YWRhOnNAY3JldA=="}
    assert found.client.rest_client.pool_manager.proxy_headers == told
    assert found.client.configuration.proxy_headers == told


def test_a_login_of_a_proxy_is_sent_in_utf_8_like_that_of_kubectl() -> None:
    signs = "\N{EURO SIGN}\N{LATIN SMALL LETTER U WITH DIAERESIS}"
    told = {"proxy-authorization": "Basic " + b64encode(f"ada:{signs}".encode()).decode()}
    assert proxy_login(f"http://ada:{quote(signs)}@proxy.example:3128") == told
    assert proxy_login(f"http://ada:{signs}@proxy.example:3128") == told


@pytest.mark.parametrize("proxy", [None, "http://proxy.example:3128", "socks5://ada:secret@proxy.example:1080"])
def test_no_other_proxy_is_told_anything(proxy: str | None) -> None:
    assert proxy_login(proxy) is None


def test_a_cluster_whose_certificate_is_not_looked_at_is_no_reason_to_warn(
    api: ApiServer, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """The kubeconfig says so, and `kubectl` is silent about it."""
    cluster = {"server": api.url, "insecure-skip-tls-verify": True}
    assert connected(written(tmp_path / "config", "lab", {"token": TOKEN}, **cluster)).raw("/version")["major"] == "1"
    # Python may warn meanwhile of what another test has left open.
    assert [str(one.message) for one in recwarn if issubclass(one.category, InsecureRequestWarning)] == []
