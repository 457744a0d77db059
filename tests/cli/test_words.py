"""The words of a command line: colours before and after a command, commands for a node, values, and where it is typed."""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from jobctl.main import COMMANDS, function_of

CHOOSE_HOSTS = [name for name in COMMANDS if {"on", "exclude"} & set(signature(function_of(name)).parameters)]


@pytest.mark.parametrize(
    ("argv", "coloured"),
    [
        (("--color", "always", "status", "nobody"), True),
        (("status", "nobody", "--color=always"), True),
        (("status", "--color", "always", "nobody"), True),
        (("status", "nobody"), False),  # the choice of one command is not that of the next
        (("status", "nobody", "--color", "never"), False),
    ],
)
def test_color_counts_before_and_after_the_command(jobctl: Any, argv: tuple[str, ...], coloured: bool) -> None:
    ran = jobctl(*argv)
    assert (ran.code, ran.err.startswith("\x1b[31merror\x1b[0m: ")) == (2, coloured)


@pytest.mark.parametrize("argv", [("list", "--color", "blue"), ("list", "--color"), ("--color=", "list")])
def test_a_color_that_is_none_is_wrong_usage(jobctl: Any, argv: tuple[str, ...]) -> None:
    ran = jobctl(*argv)
    assert (ran.code, "--color" in ran.err) == (2, True)


def test_the_color_of_a_command_in_a_node_is_left_to_it(jobctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows `--` is another program's."""
    from jobctl.jobspec.operations.inspect import oneoff

    given: list[Any] = []
    monkeypatch.setattr(oneoff, "run_like_node", lambda request, reporter: given.append(request.argv) or 0)
    assert jobctl("run", "job.yaml", "--", "ls", "--color", "always").code == 0
    assert given == [["ls", "--color", "always"]]


def test_a_color_before_the_command_leaves_it_as_it_is(jobctl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from jobctl.jobspec.operations.inspect import oneoff

    given: list[Any] = []
    monkeypatch.setattr(oneoff, "run_like_node", lambda request, reporter: given.append(request.argv) or 0)
    assert jobctl("--color", "never", "run", "job.yaml", "--", "ls", "-l").code == 0
    assert given == [["ls", "-l"]]
    assert "there is no file `gone.yaml`" in jobctl("--color", "never", "check", "--fitness", "gone.yaml").err


@pytest.mark.parametrize(
    "argv",
    [
        ("ssh", "small", "--node", "0", "ls"),
        ("ssh", "--node", "0", "ls"),
        ("ssh", "small", "--node", "0", "--", "ls"),
        ("ssh", "--node", "0", "--", "ls"),
    ],
)
def test_who_gives_a_command_to_ssh_is_told_of_exec(jobctl: Any, argv: tuple[str, ...]) -> None:
    ran = jobctl(*argv)
    assert (ran.code, "takes no command" in ran.err) == (2, True)
    assert "`jobctl exec --node N -- ls` runs one" in ran.err


@pytest.mark.parametrize("name", ["exec", "run"])
def test_a_command_without_dashes_is_no_job(jobctl: Any, name: str) -> None:
    assert "no command is given" in jobctl(name, "--node", "0", "ls").err


@pytest.mark.parametrize("command", ["validate", "up", "init", "status"])
def test_a_folder_that_was_removed_is_told(jobctl: Any, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Path("gone").absolute()
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    ran = jobctl(command)
    told = ["error: the current folder no longer exists", "hint: `cd` to one that does, and try again"]
    assert (ran.code, ran.out, ran.err.splitlines()) == (2, "", told)


@pytest.mark.parametrize(("option", "first"), [("--color", "auto"), ("--target", "local")])
def test_a_value_that_is_none_of_those_is_told_in_plain_words(jobctl: Any, option: str, first: str) -> None:
    for output in ((), ("-o", "json")):
        ran = jobctl("up", option, "foo", *output)
        assert (ran.code, f"Invalid value for '{option}': 'foo' is not one of '{first}'," in ran.err) == (2, True), (
            ran.err
        )


@pytest.mark.parametrize("option", ["--on", "--exclude"])
@pytest.mark.parametrize("command", CHOOSE_HOSTS)
def test_each_choice_of_hosts_counts(jobctl: Any, command: str, option: str) -> None:
    """A repeated option must not lose what was named first: the job would run on a host that was left out."""
    Path("hosts.txt").write_text("h1\nh2\n")
    rest = ("--", "true") if command == "run" else ()
    ran = jobctl(command, "--hosts", "hosts.txt", option, "nobody", option, "h1", *rest)
    assert (ran.code, "there is no host `nobody` in the hosts file" in ran.err) == (2, True), ran.err


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("logs", "--node", "0", "--node", "1"), "--node"),
        (("logs", "--rank=0", "--rank", "0"), "--rank"),
        (("restart", "job.yaml", "--node", "0", "--node=1"), "--node"),
        (("up", "--hosts", "a", "-h", "--hosts", "b"), None),
        (("up", "--hosts", "a", "--hosts", "b"), "--hosts"),
        (("validate", "--target", "ssh", "--target", "compose"), "--target"),
        (("down", "-n", "a", "--namespace", "b"), "--namespace"),
    ],
)
def test_a_choice_of_one_thing_is_made_once(jobctl: Any, arguments: tuple[str, ...], option: str | None) -> None:
    ran = jobctl(*arguments)
    if option is None:
        assert (ran.code, "Usage" in ran.out) == (0, True)
        return
    assert (ran.code, f"{option} is given 2 times: it takes one value" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("choice", "room"),
    [
        (("--on", "h1", "--on", "h[2-3]"), 3),
        (("--exclude", "h1", "--exclude", "h2,h3"), 1),
        (("--on", "h1,h2", "--on", "h3", "--exclude", "h1", "--exclude", "h3"), 1),
    ],
)
def test_repeated_choices_of_hosts_are_one(jobctl: Any, choice: tuple[str, ...], room: int) -> None:
    Path("job.yaml").write_text("name: small\nframework: torch\nimage: i:1\nmodule: train\nnodes: 9\n")
    Path("hosts.txt").write_text("h[1-4]\n")
    assert f"the hosts file has room for {room} [" in jobctl("validate", "--hosts", "hosts.txt", *choice).out
