"""What the code is, what is left out of it, and how it comes to a host and into manifests."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import tarfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.model.control import Ledger, ledger_json
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.sending.send_code import Package, archive_of, pack_code
from jobctl.jobspec.deploy.store import code as code_module
from jobctl.jobspec.deploy.store.code import GENERATOR, File, code_hash, digest_of, note_pulled, select
from jobctl.jobspec.deploy.store.ignore import Patterns
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.plan.sent import Code
from jobctl.jobspec.plan.types import Plan
from tests.render.plans import plan as made_plan

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "src"
    made.mkdir()
    put(made, "train.py", "print(1)\n")
    return made


def put(root: Path, name: str, text: str = "x", mode: int = 0o644) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def planned(root: Path, **how: Any) -> Plan:
    return replace(made_plan(), target="compose", code=replace(Code(str(root), "/workspace", ()), **how))


def names(plan: Plan) -> list[str]:
    assert plan.code is not None
    return [file.name for file in select(plan.code, plan.job, plan.outputs, None).files]


@pytest.mark.parametrize(
    ("lines", "path", "matched"),
    [
        (["a"], "a/b/c", True),
        (["*.py"], "a/b.py", False),
        (["**/*.py"], "b.py", True),
        (["a/**/z"], "a/z", True),
        (["a/**/z"], "a/b/c/z", True),
        (["a/**"], "a", False),
        (["*", "!src/**"], "src/x.py", False),
        (["a", "!a/b", "a/b/c"], "a/b/c", True),
        (["[!a]"], "!", True),
        (["a[0-9].txt"], "a7.txt", True),
        (["a[^0-9]"], "a7", False),
        (["/a/", "b/../c"], "c", True),
        (["a.b"], "aXb", False),
        (["\\*"], "*", True),
    ],
)
def test_patterns_mean_what_they_mean_to_docker(lines: list[str], path: str, matched: bool) -> None:
    assert Patterns(lines).match(path) is matched


PRIVATE = {
    ".env": "an env file",
    ".env.production": "an env file",
    "deep/.env": "an env file",
    ".netrc": "credentials",
    ".ssh/config": "credentials",
    "home/.aws/credentials": "credentials",
    ".docker/config.json": "credentials",
    ".git-credentials": "credentials",
    "id_rsa": "a private key",
    "certs/server.pem": "a private key",
}


def test_what_is_private_is_left_out_unless_it_is_included(root: Path) -> None:
    for name in PRIVATE:
        put(root, name, "CERT\n" + PEM if "pem" in name or "id" in name else "TOKEN=x")
    put(root, "docs.py", "# mentions -----BEGIN RSA PRIVATE KEY----- in a sentence\n")
    put(root, ".docker/notes.cfg")
    plan = planned(root)
    assert plan.code is not None
    found = select(plan.code, plan.job, (), None)
    assert [file.name for file in found.files] == [".docker/notes.cfg", "docs.py", "train.py"]
    reasons = {one.name: one.why for one in found.left_out}
    assert reasons == {
        **{name: why for name, why in PRIVATE.items() if ".ssh" not in name and ".aws" not in name},
        ".ssh/": "credentials",
        "home/.aws/": "credentials",
    }
    every = names(planned(root, include=(*PRIVATE,)))
    assert sorted(every) == sorted([*PRIVATE, ".docker/notes.cfg", "docs.py", "train.py"])
    assert ".env" in names(planned(root, include=(".env",)))
    assert "id_rsa" not in names(planned(root, include=(".env",)))


@pytest.mark.parametrize("name", ["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "keys/id_ed25519_sk"])
def test_a_file_with_the_name_of_a_key_is_left_out_whatever_it_holds(root: Path, name: str) -> None:
    for other in (name, "id_rsa.pub", "ca.pem"):
        put(root, other, "x")
    assert names(planned(root)) == ["ca.pem", "id_rsa.pub", "train.py"]
    assert name in names(planned(root, include=(name,)))


@pytest.mark.parametrize("indent", [None, 2])
def test_the_key_of_a_service_account_is_left_out(root: Path, indent: int | None) -> None:
    account = {"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\nMIIE\n", "client_id": "1"}
    put(root, "conf/account.json", json.dumps(account, indent=indent))
    put(root, "conf/model.json", json.dumps({"private_key": None, "layers": 2}, indent=indent))
    assert names(planned(root)) == ["conf/model.json", "train.py"]


def test_what_the_spec_names_is_left_out(root: Path) -> None:
    put(root, "tok.txt")
    put(root, "job.yaml")
    os.symlink("tok.txt", root / "link")
    plan = planned(root, withheld=((f"{root}/tok.txt", "secret `TOKEN`"), (f"{root}/job.yaml", "the spec")))
    assert names(plan) == ["link", "train.py"]  # a link is sent as one, and leads nowhere there
    assert names(replace(plan, code=replace(plan.code, include=("tok.txt",)))) == ["link", "tok.txt", "train.py"]  # type: ignore[type-var]
    # A folder that is reached by another name is the same folder.
    other = root.parent / "other"
    other.symlink_to(root)
    assert names(replace(plan, code=replace(plan.code, source=str(other)))) == ["link", "train.py"]  # type: ignore[type-var]


def test_what_jobctl_wrote_is_no_code(root: Path) -> None:
    before = code_hash(planned(root))
    put(root, "story.html", f"<!doctype html>\n{GENERATOR.decode()}\n")
    put(root, "rendered/.jobctl-render", "")
    put(root, "rendered/gpu01/compose.yaml")
    put(root, "results/gpu01/logs/workerlog.0")
    note_pulled(root / "results", set())
    put(root, "gpu02/logs/workerlog.0")
    # The code is a home, and the host this machine or one that shares it.
    put(root, ".jobctl/resnet/node-0/report.json")
    note_pulled(root, {"train.py", "rendered", "results", "story.html"})
    assert code_hash(planned(root)) == before
    put(root, "results/mine.py")
    assert names(planned(root)) == ["results/mine.py", "train.py"]


NOTES = ("README", "README.md", "README.txt", "LICENSE", "CHANGELOG.rst", "NOTES.md", "todo.md")
DATA = ("notes.txt", "notes", "AUTHORS.txt", "data/clinical/notes.txt", "docs/README.md", "corpus/authors", "notes.py")


def test_notes_are_sent_and_no_reason_to_begin_anew(root: Path) -> None:
    before = code_hash(planned(root))
    for name in NOTES:
        put(root, name)
    assert code_hash(planned(root)) == before
    assert {*NOTES} <= {*names(planned(root))}


@pytest.mark.parametrize("name", DATA)
def test_what_may_be_data_is_another_version(root: Path, name: str) -> None:
    before = code_hash(planned(root))
    put(root, name)
    assert code_hash(planned(root)) != before


def test_the_version_covers_names_kinds_and_contents(root: Path) -> None:
    hashes = [code_hash(planned(root))]
    for change in (
        lambda: put(root, "train.py", "print(2)\n"),
        lambda: (root / "train.py").chmod(0o600),
        lambda: (root / "train.py").chmod(0o700),
        lambda: (root / "train.py").chmod(0o755),
        lambda: (root / "train.py").rename(root / "main.py"),
        lambda: os.symlink("main.py", root / "link"),
    ):
        change()
        hashes.append(code_hash(planned(root)))
    assert len(set(hashes)) == len(hashes)
    os.utime(root / "main.py", (1, 1))
    assert code_hash(planned(root)) == hashes[-1]


def test_another_umask_is_no_other_version(root: Path) -> None:
    put(root, "run.sh", mode=0o755)
    before, packed = code_hash(planned(root)), archive_of(planned(root))
    (root / "train.py").chmod(0o664)
    (root / "run.sh").chmod(0o775)
    assert code_hash(planned(root)) == before
    assert archive_of(planned(root)) == packed


def test_a_large_file_is_not_read_where_nothing_is_sent(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (root / "model.bin").open("wb") as file:
        file.truncate(1 << 31)
    opened: list[str] = []

    def spy(path: Any, *how: Any, **more: Any) -> Any:
        opened.append(os.path.basename(path))
        return open(path, *how, **more)

    monkeypatch.setattr(code_module, "open", spy, raising=False)
    local = replace(planned(root), target="local")
    before = code_hash(local)
    assert opened == ["train.py"]
    os.truncate(root / "model.bin", 1 << 30)
    assert code_hash(local) != before


# Sending.


def host_job(work: Path) -> Any:
    return SimpleNamespace(work=work, transport=LocalTransport())


def send(plan: Plan, work: Path) -> Path:
    """Send the code of `plan` to a host, and return where it lies there."""
    package = pack_code(replace(plan, code=replace(plan.code, version=code_hash(plan))))  # type: ignore[type-var]
    assert package is not None
    package.send(host_job(work))
    return work / "code" / (package.code.version or "")


def test_a_host_gets_the_files_with_their_modes(root: Path, tmp_path: Path) -> None:
    put(root, "run.sh", mode=0o755)
    put(root, "private.cfg", mode=0o600)
    put(root, "big.bin", "0123456789" * 300_000)
    os.symlink("run.sh", root / "link")
    there = send(planned(root), tmp_path / "host")
    modes = {path.name: path.stat().st_mode & 0o777 for path in there.iterdir() if not path.is_symlink()}
    assert modes == {"train.py": 0o644, "run.sh": 0o755, "private.cfg": 0o600, "big.bin": 0o644}
    assert (there / "big.bin").read_bytes() == (root / "big.bin").read_bytes()
    assert os.readlink(there / "link") == "run.sh"


def test_only_what_changed_is_sent_again(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(root, "same.py")
    put(root, "mode.py")
    send(planned(root), tmp_path / "host")
    put(root, "train.py", "print(2)\n")
    (root / "mode.py").chmod(0o600)
    for path in (tmp_path / "host" / "code").rglob("*.py"):
        path.chmod(path.stat().st_mode | 0o060)  # as a host does that shares them with the user of a container
    sent: list[str] = []
    real = Package.send

    def spy(self: Package, where: Any) -> None:
        run = where.transport.run

        def record(argv: Any, stdin: Any = b"", **how: Any) -> Any:
            data = b"".join([stdin] if isinstance(stdin, bytes) else stdin)
            if data:
                with tarfile.open(fileobj=io.BytesIO(data[data.rindex(b"same.py\0") + 8 :])) as archive:
                    sent.extend(archive.getnames())
            return run(argv, data, **how)

        where.transport = SimpleNamespace(run=record, host="h")
        real(self, where)

    monkeypatch.setattr(Package, "send", spy)
    there = send(planned(root), tmp_path / "host")
    assert sorted(sent) == ["mode.py", "train.py"]
    assert {path.name: path.stat().st_mode & 0o777 for path in there.iterdir()} == {
        "same.py": 0o664,
        "mode.py": 0o600,
        "train.py": 0o644,
    }


def test_what_is_written_into_one_version_stays_out_of_another(root: Path, tmp_path: Path) -> None:
    """Containers write where the code is, and processes of two versions may run while `up` replaces them."""
    put(root, "lib/same.py", "same\n")
    first = send(planned(root), tmp_path / "host")
    (first / "lib").chmod(0o2770)  # as a container has left it
    put(root, "train.py", "print(2)\n")
    second = send(planned(root), tmp_path / "host")
    (first / "lib/same.py").write_text("of the first\n")
    (first / "lib/same.py").chmod(0o600)
    assert (second / "lib/same.py").read_text() == "same\n"
    (second / "lib/same.py").write_text("of the second\n")
    assert (first / "lib/same.py").read_text() == "of the first\n"
    assert [(second / name).stat().st_mode & 0o7777 for name in ("lib", "lib/same.py")] == [0o755, 0o644]


@pytest.mark.parametrize("tool", ["openssl", "openssl that fails", "sha256sum"])
def test_what_is_the_same_is_found_with_what_the_host_has(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    """A name with a line feed that looks like the digest of another file speaks for that one nowhere."""
    tools, used = tmp_path / "bin", tmp_path / "used"
    tools.mkdir()
    for name in ("sh", "ls", "head", "find", "sha256sum", "touch"):
        (tools / name).symlink_to(shutil.which(name) or name)
    if tool != "sha256sum":
        real = f'exec {shutil.which("openssl")} "$@"' if tool == "openssl" else "exit 1"
        put(tools, "openssl", f"#!/bin/sh\n: > {used}\n{real}\n", 0o755)
    put(root, "a b/same.py", "same\n")
    there = send(planned(root), tmp_path / "host")
    put(root, "train.py", "print(2)\n")
    digest = sha256(b"print(2)\n").hexdigest()
    for between in ("  ", " *"):
        put(there, f"a\n{digest}{between}./train.py")
    package = pack_code(planned(root, version="2"))
    assert package is not None
    monkeypatch.setenv("PATH", str(tools))
    seen = package.look(host_job(tmp_path / "host"))
    assert seen is not None
    assert seen.same == {b"a b/same.py"}
    assert used.exists() == (tool != "sha256sum")


def test_a_file_that_is_gone_by_then_is_not_left_out(root: Path, tmp_path: Path) -> None:
    """Something in a container removes it after jobctl has looked which files are there."""
    put(root, "same.py")
    first = send(planned(root), tmp_path / "host")
    put(root, "train.py", "print(2)\n")
    package, host = pack_code(planned(root, version="2")), host_job(tmp_path / "host")
    assert package is not None
    there = package.look(host)
    (first / "same.py").unlink()
    with pytest.raises(HostError, match=r"same\.py"):
        package.send(host, there)
    assert not (tmp_path / "host" / "code" / "2").exists()
    package.send(host)
    assert {path.name for path in (tmp_path / "host" / "code" / "2").iterdir()} == {"same.py", "train.py"}


def test_what_runs_keeps_its_version_however_often_another_one_is_prepared(root: Path, tmp_path: Path) -> None:
    work = tmp_path / "host"
    first = send(planned(root), work)
    (work / "compose.yaml").write_text(f"      source: ./code/{first.name}\n")
    versions = [first]
    for number in (2, 3, 4):
        put(root, "train.py", f"print({number})\n")
        versions.append(send(planned(root), work))
    assert [path.exists() for path in versions] == [True, False, True, True]
    (work / "compose.yaml").unlink()
    (work / "node-0.sh").write_text(f"  source=$work/code/{versions[3].name}\n")
    put(root, "train.py", "print(5)\n")
    versions.append(send(planned(root), work))
    assert [path.exists() for path in versions] == [False, False, False, True, True]


def test_what_runs_keeps_its_version_however_often_a_change_waits(root: Path, tmp_path: Path) -> None:
    """Artefacts are those of the change; the ledger names what runs, until the change is made."""
    work = tmp_path / "host"
    versions = [send(planned(root), work)]
    (work / "run").mkdir()
    (work / "run" / "ledger.json").write_bytes(ledger_json(Ledger(1.0, versions[0].name)))
    for number in (2, 3, 4):
        put(root, "train.py", f"print({number})\n")
        (work / "compose.yaml").write_text("      source: ./code/next\n")
        versions.append(send(planned(root), work))
    assert [path.exists() for path in versions] == [True, False, True, True]


def test_a_file_that_shrinks_while_it_is_sent_is_an_error(root: Path, tmp_path: Path) -> None:
    put(root, "log.txt", "x" * 5000)
    package = pack_code(planned(root, version="1"))
    assert package is not None
    os.truncate(root / "log.txt", 10)
    with pytest.raises(DeployError, match=r"log.txt became shorter"):
        package.send(host_job(tmp_path / "host"))
    assert list((tmp_path / "host" / "code").iterdir()) == []


def test_manifests_carry_the_same_bytes_with_modes_and_no_secrets(root: Path) -> None:
    put(root, ".env", "TOKEN=x")
    put(root, "key.cfg", mode=0o600)
    first = archive_of(planned(root))
    os.utime(root / "train.py", (1, 1))
    assert archive_of(planned(root)) == first
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(first or ""))) as archive:
        assert {member.name: member.mode for member in archive} == {"key.cfg": 0o600, "train.py": 0o644}


def test_what_is_too_large_for_manifests_is_not_packed_whole(root: Path) -> None:
    (root / "noise.bin").write_bytes(os.urandom(3_000_000))
    assert 1_000_000 < len(base64.b64decode(archive_of(planned(root)) or "")) < 1_600_000


def test_a_file_without_a_size_is_not_read() -> None:
    """`code: /` takes along /proc, where `kmsg` never ends."""
    info = os.stat("/proc/self/status")
    assert Path("/proc/self/status").read_bytes()
    assert digest_of(File(Path("/proc/self/status"), "status", info)) == sha256(b"").hexdigest()
