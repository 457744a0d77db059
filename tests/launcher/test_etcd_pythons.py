"""Launchers with etcd on the oldest Python that is promised, and on a new one."""

from __future__ import annotations

import json
from pathlib import Path

from tests.tools.etcd import PASSWORD, USER, etcd

from .test_etcd import Kept, end, nothing_outlives_a_test

__all__ = ["nothing_outlives_a_test"]  # a fixture


def test_a_failed_process_goes_on(tmp_path: Path, python: str) -> None:
    with etcd(tmp_path / "etcd", tls=True, users=True) as cluster:
        kept = Kept(tmp_path, python, cluster)
        kept.launch["etcd"] |= {"user": USER, "password": "ETCD_PASSWORD"}
        secrets = tmp_path / "secrets.json"
        secrets.write_text(json.dumps({"ETCD_PASSWORD": PASSWORD}))
        with kept.supervisor:
            kept.begin()
            kept.start("--secrets", str(secrets), secrets=["ETCD_PASSWORD"])
            kept.until("running", 1)
            kept.kill()
            kept.until("running", 2)
            kept.begin(3, command="finish", grace=0.0)
            kept.until("stopped", 2)
            end(kept)
            assert cluster.keys("/jobctl/") == {}
