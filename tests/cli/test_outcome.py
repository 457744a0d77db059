"""How `up` ends: by which of the job's hosts did their part."""

from __future__ import annotations

import pytest

from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.operations.lifecycle.base import Applied
from tests.deploy.test_executor import TWO

NO = DeployError("no")


@pytest.mark.parametrize(
    ("failed", "held", "code"),
    [((), False, 0), (("h1",), False, 4), (("h0", "h1"), False, 3), (("s0",), False, 4), ((), True, 4)],
)
def test_the_exit_code_says_whether_all_some_or_no_hosts_did_their_part(
    failed: tuple[str, ...], held: bool, code: int
) -> None:
    assert Applied(TWO, (), dict.fromkeys(failed, NO), ready=True, held=held).code == code
