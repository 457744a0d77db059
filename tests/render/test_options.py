"""Options of `docker run` in a compose file."""

from __future__ import annotations

import pytest

from jobctl.jobspec.render.errors import RenderError
from jobctl.jobspec.render.options import service_keys


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), {}),
        (("--privileged",), {"privileged": True}),
        (("--privileged=false",), {"privileged": False}),
        (("--ipc=host",), {"ipc": "host"}),
        (("--ipc", "host"), {"ipc": "host"}),
        (("--ipc=private", "--ipc=host"), {"ipc": "host"}),
        (("--pids-limit", "100"), {"pids_limit": 100}),
        (("--memory-swap=-1",), {"memswap_limit": -1}),
        (("--memory-swap=8g",), {"memswap_limit": "8g"}),
        (("--dns=10.0.0.1", "--dns=10.0.0.2", "--dns", "10.0.0.1"), {"dns": ("10.0.0.1", "10.0.0.2")}),
        (("--sysctl=a=1", "--sysctl", "b=2"), {"sysctls": ("a=1", "b=2")}),
        (("--uts=host", "--cap-drop=ALL"), {"cap_drop": ("ALL",), "uts": "host"}),
    ],
)
def test_said_with_keys(options: tuple[str, ...], expected: dict[str, object]) -> None:
    assert service_keys(options) == expected


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (
            ("--shm-size=1g",),
            "`--shm-size` cannot be said in a compose file",
            "use the spec's `resources.shm_size`",
        ),
        (("-v", "/a:/b"), "`-v` cannot be said in a compose file", "use the spec's `volumes`"),
        (
            ("--cidfile=x",),
            "`--cidfile` cannot be said in a compose file",
            "use `--target ssh`, which passes it to `docker run` as it is",
        ),
        (("--ipc",), "`--ipc` needs a value", None),
        (("--pids-limit=many",), "`--pids-limit` needs a number, not `many`", None),
    ],
)
def test_not_in_compose(options: tuple[str, ...], message: str, hint: str | None) -> None:
    with pytest.raises(RenderError) as caught:
        service_keys(options)
    error = caught.value
    assert (error.code, str(error), error.hint) == (
        "option-not-in-compose",
        f"`container.options`: {message}",
        hint,
    )
