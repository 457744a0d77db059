"""A secret that somebody has pasted into a spec by mistake is in nothing that `validate` prints."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobctl.main import main

SPEC = "name: demo\nframework: torch\nmodule: train\n"
PASTED = (
    "secrets: [WANDB_API_KEY=hush-42]",
    "secrets:\n- OK\n- WANDB_API_KEY=hush-42",
    "secrets: [sk-hush-42]",
    "secrets: ['A: hush']",
    "secrets: {A=hush: }",
    "secrets: {A: {value: hush}}",
    "secrets: {A: {env: sk-hush-42}}",
    "secrets: [{A: hush}]",
    "secrets: hush-42",
    "secrets: [OK]\nenv: {OK: hush}",
    "env: {A_PASSWORD: hush, b-c: d}",
    "env: {A_PASSWORD: '${X:-hush}', b-c: d}",
    "env: {A_PASSWORD: '${X:?}hush', b-c: d}",
    "etcd: {endpoints: ['a:1'], user: u, password: hush}",
    "etcd: {endpoints: ['a:1'], password: hush}",
    "etcd: {endpoints: ['a:1'], user: u, password: 'a${hush'}",
    "etcd: {endpoints: ['a:1'], user: u, password: a$hush}",
    "etcd: {endpoints: ['a:1'], user: u, password: [hush]}",
    "notify: https://example.com/hush",
    "notify: [https://example.com/hush]",
    "notify: {webhook: https://example.com/hush}",
    "notify: [{webhok: https://example.com/hush}]",
    "notify: [{webhook: {url: https://example.com/hush}}]",
    "notify: [{webhook: hush-42}]",
    "notify:\n- webhook: >-\n    https://example.com/\n    hush",
    "notify: [{email: {to: a@example.com, smtp: {host: h, user: u, passwd: hush}}}]",
    "notify: [{email: {to: a@example.com, smtp: {host: h, user: u, password: {value: hush}}}}]",
)


@pytest.mark.parametrize("pasted", PASTED)
@pytest.mark.parametrize("more", [(), ("-o", "json")])
def test_no_output_holds_what_may_be_a_secret(
    pasted: str,
    more: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path)})
    path = tmp_path / "job.yaml"
    path.write_text(f"{SPEC}{pasted}\n")
    with pytest.raises(SystemExit) as ended:
        main(["validate", str(path), *more])
    printed = capsys.readouterr()
    assert "hush" not in printed.out + printed.err
    assert ended.value.code == 2


@pytest.mark.parametrize("pasted", [one for one in PASTED if "\n" not in one])
def test_nor_does_what_an_option_gave(
    pasted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path)})
    path = tmp_path / "job.yaml"
    path.write_text(SPEC)
    with pytest.raises(SystemExit):
        main(["validate", str(path), "--set", pasted.replace(": ", "=", 1)])
    printed = capsys.readouterr()
    assert "hush" not in printed.out + printed.err


def test_counts_of_tokens_are_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path)})
    path = tmp_path / "job.yaml"
    path.write_text(f"{SPEC}env: {{MAX_TOKENS: 512, HF_TOKEN: hush, b-c: d}}\n")
    with pytest.raises(SystemExit):
        main(["validate", str(path)])
    assert "{MAX_TOKENS: 512, HF_TOKEN: ****, b-c: d}" in capsys.readouterr().out
