"""Terminals that stay when people leave, and in which commands run on: `tmux`, `screen`."""

from __future__ import annotations

from dataclasses import replace

from jobctl.jobspec.importers.option_words import leading
from jobctl.jobspec.importers.shell.expand import Read
from jobctl.jobspec.importers.start_command import Inside, StartCommand

_TMUX = {"-c", "-e", "-f", "-F", "-L", "-n", "-s", "-S", "-t", "-x", "-y", "-N"}
_KEYS = {"Enter", "C-m", "KPEnter"}


def tmux(launch: StartCommand, read: Read) -> Inside | None:
    """Return the command that `tmux new` or `tmux send-keys` starts."""
    _, words = leading(launch.argv[1:], _TMUX)
    options, rest = leading(words[1:], _TMUX)
    if words[:1] == ["send-keys"] or words[:1] == ["send"]:
        rest = [word for word in rest if word not in _KEYS]
    elif words[:1] not in (["new"], ["new-session"], ["new-window"], ["neww"]):
        return None
    folder = next((value for name, value in options if name == "-c"), None)
    text = " ".join(rest)
    return (replace(launch, argv=("sh", "-c", f"cd {folder} && {text}" if folder else text)),) if rest else None


def screen(launch: StartCommand, read: Read) -> Inside | None:
    """Return the command that `screen -dmS NAME` starts."""
    options, rest = leading(
        launch.argv[1:], {"-S", "-dmS", "-DmS", "-c", "-e", "-h", "-p", "-s", "-T", "-t", "-Logfile"}
    )
    return (replace(launch, argv=tuple(rest)),) if rest and "-X" not in dict(options) else None
