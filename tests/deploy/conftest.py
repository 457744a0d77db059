"""What the tests of deploying share: data with a host to send it to, and an sshd whose key is known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.sending.sent_data import data_folder, host_of_data
from tests.tools.loopback import Loopback, loopback


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with data."""
    return data_folder(tmp_path)


@pytest.fixture
def host(tmp_path: Path) -> Any:
    """A host that gets data."""
    return host_of_data(tmp_path)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Loopback]:
    """An sshd on this machine, whose key is known."""
    with loopback(tmp_path) as made:
        made.known_hosts.write_text(made.line())
        yield made
