"""`jobctl report`: a run as a web page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from jobctl import console
from jobctl.options import AcceptNew, Hosts, Job, SshConfig
from jobctl.views.failure import command

if TYPE_CHECKING:
    from jobctl.jobspec.report.report import Story

STDOUT = "-"
FORMATS = ("json", "text")  # what `-o` of other commands takes


@command
def report(
    job: Job = None,
    hosts: Hosts = None,
    ssh_config: SshConfig = None,
    accept_new: AcceptNew = False,
    output: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to; default ./JOB-report.html, `-`: stdout.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Tell the story of a run as a web page.

    One HTML file that needs nothing else: what each node did, progress, failures and what they cost, and which part of
    the time was effective training. From what this machine recorded, and what the job's launchers have kept.

    Example: jobctl report my-job -o story.html
    """
    from jobctl.jobspec.deploy.store.files import replace_named
    from jobctl.jobspec.operations.errors import Refused
    from jobctl.jobspec.operations.inspect.report import gather_story, story_of
    from jobctl.jobspec.operations.resolve.job import Reached, job_of_name
    from jobctl.jobspec.operations.resolve.names import name_of
    from jobctl.jobspec.report.html import page

    if output in FORMATS:
        hint = f"`-o ./{output}` for a file of that name; `jobctl events -o json` and `jobctl metrics` print what it is made of"
        raise Refused(f"`report` writes a page, and `-o` names its file: there is no format `{output}`", hint)
    reached = Reached(hosts, ssh_config, accept_new)
    name = name_of(job, reached)
    directory = job_of_name(name)
    gathered = gather_story(directory, reached)
    story = story_of(directory, gathered)
    for host in gathered.silent:
        console.warning(f"{host} does not answer: what its launchers have kept is not in the report")
    content = page(story, time.time(), None).encode()
    if output == STDOUT:
        console.out_bytes(content)
        return
    path = Path(output or f"{name}-report.html")
    replace_named(path, content)
    console.say(f"wrote {path}: {_gist(story)}")


def _gist(story: Story) -> str:
    """Return the story in a line."""
    from jobctl.jobspec.launcher.telling.words import counted, in_words
    from jobctl.jobspec.report.layout import percent

    failures = counted(len(story.failures), "failure")
    what = f"{failures}, {in_words(story.lost)} lost" if story.failures else "no failure"
    ratio = "" if story.ratio is None else f", {percent(story.ratio)} effective training time"
    return f"{story.phase}, {in_words(story.end - story.begin)}, {what}{ratio}"
