"""What servers refuse, in our words; and what the client must not do with every request."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.kubernetes.api import Api, connect
from jobctl.jobspec.deploy.kubernetes.kinds import JOB
from jobctl.jobspec.deploy.kubernetes.problems import ApiError, Call, problem_of
from tests.kube.server import ApiServer

PATCH = Call("patch", JOB, "ml", "resnet")


def problem(status: int, **said: object) -> ApiError:
    return problem_of(PATCH, status, json.dumps(said).encode(), "test")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (
            500,
            "failed to create typed patch object (/resnet; batch/v1, Kind=Job): .spec.typo: field not declared in schema",
        ),
        (500, "failed to create typed patch object: .spec.typo: field not declared in schema"),
        (400, 'Job in version "v1" cannot be handled as a Job: strict decoding error: unknown field "spec.typo"'),
    ],
)
def test_a_field_that_the_cluster_does_not_know_is_named(status: int, words: str) -> None:
    told = problem(status, message=words)
    assert (
        told.message
        == "test: cannot patch Job resnet in namespace ml: the cluster knows no field `spec.typo` of batch/v1 Job"
    )
    assert "older" in (told.hint or "")


def test_a_webhook_that_refuses_is_no_right_that_is_missing() -> None:
    words = 'admission webhook "policy.example.com" denied the request: containers cannot run as root'
    told = problem(403, reason="Forbidden", message=words)
    assert (told.message, told.hint) == (f"test: cannot patch Job resnet in namespace ml: {words}", None)
    authorizer = 'jobs.batch "resnet" is forbidden: User "ada" cannot patch resource "jobs" in API group "batch"'
    assert problem(403, message=authorizer).message == "test: no right to patch Job resnet in namespace ml"


def test_an_object_that_is_another_by_now_is_known_by_its_uid() -> None:
    uid = {"causes": [{"reason": "FieldValueInvalid", "field": "metadata.uid"}]}
    image = {"causes": [{"reason": "FieldValueInvalid", "field": "spec.image"}]}
    assert problem(422, reason="Invalid", details=uid).is_another
    assert problem(409, reason="Conflict").is_another
    assert not problem(422, reason="Invalid", details=image).is_another


class Answer:
    """What a proxy says that has no server behind it."""

    status, headers = 503, {"Retry-After": "0"}

    def read(self) -> bytes:
        return b""

    def release_conn(self) -> None:
        """Keep the connection."""


def test_a_server_that_is_never_there_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    api = Api(None, "test", "ml")
    monkeypatch.setattr(api, "_once", lambda request, silence: asked.append(request.path) or Answer())
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(ApiError):
        api.get(Call("list", JOB, "ml"))
    assert 1 < len(asked) < 100


def never_looked() -> dict[str, str]:
    raise AssertionError("it looks for a proxy again")


def test_requests_leave_the_environment_alone(api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Watches ask in threads of their own, and another thread may change it meanwhile."""
    made = connect(None, None, {"KUBECONFIG": str(api.kubeconfig(tmp_path / "config"))})
    monkeypatch.setattr("kubernetes.client.configuration.getproxies", never_looked)
    assert made.headers()["authorization"].startswith("Bearer ")
    assert made.raw("/version")["major"] == "1"


def test_requests_of_a_pod_leave_the_environment_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client reads the pod's credentials again for each request, and with them whatever it has not been told."""
    (tmp_path / "token").write_text("secret")
    (tmp_path / "ca.crt").write_text("a certificate")
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr("kubernetes.client.rest.urllib3.ProxyManager", lambda **given: given["proxy_url"])
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443", "HOME": str(tmp_path)}
    for name, value in {**environ, "HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "10.1.0.0"}.items():
        monkeypatch.setenv(name, value)
    made = connect(None, None, environ)
    assert made.client.rest_client.pool_manager == "http://proxy:3128"
    monkeypatch.setattr("kubernetes.client.configuration.getproxies", never_looked)
    assert made.headers()["authorization"] == "bearer secret"
