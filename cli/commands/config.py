"""`jobctl config`: the defaults that count, and where each comes from."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jobctl import console
from jobctl.options import Format, Output
from jobctl.views.failure import command

if TYPE_CHECKING:
    from jobctl.jobspec.operations.resolve.settings import Setting

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
        values = {key: _json(one) for key, one in found.values.items()}
        console.out_json({"file": str(found.path), "exists": found.exists, "values": values})
        return
    rows = [(key, _value(key, one), one.place or one.origin) for key, one in found.values.items()]
    console.out(console.table(("KEY", "VALUE", "FROM"), rows))
    if not found.exists:
        console.say(f"there is no configuration file {found.path}")


def _value(key: str, one: Setting) -> str:
    if one.value is None:
        return f"({_UNSET[key]})"
    missing = key in _UNSET and not one.value.is_file()
    return f"{one.value} (there is no such file)" if missing else str(one.value)


def _json(one: Setting) -> dict[str, str | None]:
    return {"value": str(one.value) if one.value else None, "from": one.origin, "place": one.place}
