"""Which webhooks launchers get: those that may be on the hosts, and no other."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.host.scripts import give
from jobctl.jobspec.deploy.model.notification import Channel
from jobctl.jobspec.deploy.store import events
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.webhooks import webhooks_for_hosts
from jobctl.jobspec.deploy.targets.local.deployer import Local
from jobctl.jobspec.launcher.report.event_log import EventLog
from jobctl.jobspec.notify.channels import keep_channels
from tests.deploy.apply.test_executor import TWO

URL = "https://hooks.example.com/very-secret"
STAYS = Channel("webhook STAYS (json)", frozenset({"failed"}), "webhook", {"url": URL, "format": "json"})
GOES = Channel(
    "webhook GOES (slack)", frozenset({"hang"}), "webhook", {"url": URL, "format": "slack", "from_hosts": True}
)
MAIL = Channel("mail to a@b", frozenset({"failed"}), "email", {"to": ["a@b"], "from_hosts": True})
TELLING = replace(TWO, nodes=tuple(replace(one, launch=replace(one.launch, tells=True)) for one in TWO.nodes))


def test_hosts_get_the_urls_that_may_be_there_and_no_other_secret(tmp_path: Path) -> None:
    job = JobDir(tmp_path / "jobs" / "demo")
    job.create()
    assert webhooks_for_hosts(job, TELLING) is None
    keep_channels(job, "demo-1", (STAYS, GOES, MAIL))
    known = {"key": "webhook GOES (slack)", "on": ["hang"], "url": URL, "format": "slack"}
    assert webhooks_for_hosts(job, TELLING) == {"version": 1, "webhooks": [known]}
    assert webhooks_for_hosts(job, TWO) is None  # its launchers are not told where these are
    keep_channels(job, "demo-1", (STAYS,))
    assert webhooks_for_hosts(job, TELLING) is None


@pytest.mark.parametrize("tells", [True, False])
def test_what_launchers_tell_up_to_their_end_is_known_before_down_removes_it(tells: bool, tmp_path: Path) -> None:
    job = JobDir(tmp_path / "jobs" / "demo")
    job.create()
    node = job.host / "node-0"
    node.mkdir(parents=True)
    log = EventLog(str(node))
    told = {"event": "told", "time": 9.0, "began": 5.0, "generation": 1, "mark": "m1", "what": "succeeded"}
    log.add([{**told, "channel": GOES.key}])
    (node / "report.json").write_text(json.dumps({"events": {"file": log.stamp.file, "count": log.stamp.count}}))
    Local(job, TELLING if tells else TWO).take_down(0.0)
    assert [event["mark"] for event in events.read(job.events)[0]] == (["m1"] if tells else [])


def test_the_user_of_containers_can_read_them_and_the_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launchers run as `container.user`; nobody else of its group may list the folder."""
    folder, given = tmp_path / "secrets", list[tuple[str, int, int]]()
    folder.mkdir(0o700)
    for name in ("secrets.json", "notify.json"):
        (folder / name).touch(0o600)
    found = {"/at/*/secrets/*.json": sorted(map(str, folder.iterdir()))}
    monkeypatch.setattr(give.glob, "glob", lambda pattern: found.get(pattern, []))
    monkeypatch.setattr(give.os, "chown", lambda path, uid, gid: given.append((Path(path).name, uid, gid)))
    give.main(1000, 2000)
    assert {one for one in given if one[1] == 1000} == {("notify.json", 1000, 2000), ("secrets.json", 1000, 2000)}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o710
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
