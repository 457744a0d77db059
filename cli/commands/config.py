"""`jobctl config`: the defaults that count, and where each comes from."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from jobctl import console
from jobctl.options import Format, Output
from jobctl.views.failure import command

if TYPE_CHECKING:
    from jobctl.jobspec.operations.resolve.settings import Setting, Settings
    from jobctl.jobspec.spec.parts.notify import Notify

_UNSET = {
    "hosts": "this machine, or what a job was started with",
    "ssh_config": "your SSH configuration",
}


@command
def config(output: Output = Format.text) -> None:
    """Show the defaults that count, and where each comes from.

    An option counts most, then an environment variable, then ~/.config/jobctl/config.yaml.

    Example: jobctl config -o json
    """
    from jobctl.jobspec.operations.resolve.settings import all_settings

    found = all_settings(os.environ)
    if output is Format.json:
        values: dict[str, Any] = {key: _json(one) for key, one in found.values.items()}
        values["notify"] = {
            "value": [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in _items(found)],
            "from": "config" if found.notify else "default",
            "place": f"{found.path}:{found.notify.line}" if found.notify else None,
        }
        console.out_json({"file": str(found.path), "exists": found.exists, "values": values})
        return
    rows = [(key, _value(key, one), one.place or one.origin) for key, one in found.values.items()]
    place = f"{found.path}:{found.notify.line}" if found.notify else "default"
    rows += [("notify", _notify(one), place) for one in _items(found)] or [("notify", "(nobody is told)", place)]
    console.out(console.table(("KEY", "VALUE", "FROM"), rows))
    if not found.exists:
        console.say(f"there is no configuration file {found.path}")


def _items(found: Settings) -> tuple[Notify, ...]:
    return found.notify.items if found.notify else ()


def _notify(one: Notify) -> str:
    """Return an item of `notify` in a line; of a secret its name, as nothing else is known here."""
    if one.webhook is not None:
        way = f"webhook {one.webhook.env or one.webhook.file} ({one.format})"
    elif one.email is not None:
        way = f"mail to {', '.join(one.email.to)}"
    else:
        way = f"command {one.command[0]}"
    return f"{', '.join(one.on)}: {way}"


def _value(key: str, one: Setting) -> str:
    if one.value is None:
        return f"({_UNSET[key]})"
    missing = key in _UNSET and not one.value.is_file()
    return f"{one.value} (there is no such file)" if missing else str(one.value)


def _json(one: Setting) -> dict[str, str | None]:
    return {"value": str(one.value) if one.value else None, "from": one.origin, "place": one.place}
