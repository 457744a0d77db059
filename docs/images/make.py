"""Makes the pictures of the documentation from one real job: `python docs/images/make.py [NAME…]`, all if none is named.

Needs an environment with the extras `examples` and `dev`. The job of `examples/torch-resnet` runs on this machine, loses
a process on purpose, and trains to its end. `session.svg` shows the commands and what they printed. `report.png` shows the
page of `jobctl report`, and `ui.png` that of `jobctl ui` while the job runs; both need Chromium. A script plays the GPUs of
`ui.png`: few machines that make pictures have eight.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from rich.console import Console
from rich.text import Text

from tests.tools.devtools import browser

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "torch-resnet"
JOB = "digits"
COLUMNS = 116
LARGEST = 200_000  # bytes of a picture
PAGE_SIZE = "1000,1230"  # of the report, in CSS pixels
PATIENCE = 900  # seconds until the job has trained
UI_SIZE = (1000, 1120)  # of the page of `jobctl ui`, in CSS pixels
GPUS = """\
#!{python}
import math, time
for n in range(4):
    use = 93 + 6 * math.sin(time.time() / (5 + n)) - (60 if math.sin(time.time() / 4 + n / 9) > 0.97 else 0)
    print(f"{{n}}, NVIDIA H100, {{use:.0f}}, {{41000 + 3000 * n + 900 * math.sin(time.time() / 6):.0f}}, 81559, 620.0, 58, 0, 0")
"""


class Session:
    """A terminal in a folder with the example's files, and what was typed and printed there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "job"
        self.shown: list[Text] = []
        self.environ = {
            **os.environ,
            "JOBCTL_STATE_DIR": str(folder / "state"),
            "CHECKPOINT_DIR": str(folder / "checkpoints"),
            "COLUMNS": str(COLUMNS),
            "FORCE_COLOR": "1",
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        }
        (folder / "bin").mkdir()
        tool = folder / "bin" / "nvidia-smi"
        tool.write_text(GPUS.format(python=sys.executable))
        tool.chmod(0o755)
        shutil.copytree(EXAMPLE, self.folder)
        (self.folder / "hosts.txt").unlink()
        spec = self.folder / "job.yaml"
        text = spec.read_text().replace("name: torch-resnet", f"name: {JOB}")
        spec.write_text(text.replace("  - --epochs=20\n", "  - --epochs=20\n  - --step-delay=0.05\n"))

    def run(self, *args: str) -> str:
        """Run one command of jobctl and return what it printed."""
        argv = [sys.executable, "-m", "jobctl", *args]
        done = subprocess.run(
            argv, cwd=self.folder, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode:
            raise SystemExit(f"jobctl {' '.join(args)} exited with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def show(self, *args: str) -> None:
        """Run one command and keep it for the picture."""
        self.shown.append(Text.assemble(("$ ", "bold green"), (f"jobctl {' '.join(args)}", "bold")))
        self.shown.append(Text.from_ansi(self.run(*args).strip("\n") + "\n"))

    def wait_for_step(self, step: int) -> None:
        """Return once every node has made this step."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            status = json.loads(self.run("status", JOB, "-o", "json"))
            if all((node["progress"] or 0) >= step for node in status["nodes"]):
                return
            time.sleep(0.5)
        raise SystemExit(f"the job has not made step {step} after {PATIENCE} s")


def train(session: Session, folder: Path) -> bytes | None:
    """Bring the job up, kill one of its processes, and see it train to the end; return a picture of the page meanwhile."""
    session.show("up")
    try:
        session.wait_for_step(130)
        session.show("drill", "--yes")
        session.wait_for_step(200)
        session.show("status")
        page = picture_of_page(session, folder)
        session.run("wait")
        session.shown.append(Text.assemble(("$ ", "bold green"), ("jobctl events", "bold")))
        events = session.run("events").strip("\n").splitlines()
        session.shown.append(Text.from_ansi("\n".join(events)))
        session.run("report", "-o", "report.html")
        return page
    finally:
        session.run("down")


def picture_of_page(session: Session, folder: Path) -> bytes | None:
    """Return the page of `jobctl ui` as PNG; None without Chromium."""
    if shutil.which("chromium") is None and shutil.which("google-chrome") is None:
        return None
    argv = [sys.executable, "-m", "jobctl", "ui", "--allow-actions"]
    with subprocess.Popen(argv, cwd=session.folder, env=session.environ, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            address = server.stderr.readline().split()[-1]
            with browser(folder / "page") as new:
                page = new()
                page.size(*UI_SIZE)
                page.open(address)
                page.shows("#failures", "SIGKILL")
                page.run("document.getElementById('text').focus()")
                page.write("loss")  # warnings of torch name the folder that it is in
                session.wait_for_step(360)  # then the curves have a shape
                page.run("document.activeElement.blur(); scrollTo(0, 0)")
                page.call("Emulation.setScrollbarsHidden", hidden=True)
                refuse_private(page.text("body"), folder)
                page.picture(folder / "ui.png")
        finally:
            server.terminate()
    return (folder / "ui.png").read_bytes()


def refuse_private(text: str, folder: Path) -> None:
    """End the script if a text says where it was made."""
    for private in (socket.gethostname(), str(Path.home()), str(folder)):
        if private in text:
            line = next(line for line in text.splitlines() if private in line)
            raise SystemExit(f"{private!r} would be in a picture: {line[:200]}")


def picture_of_session(session: Session) -> str:
    """Return the terminal as SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for text in session.shown:
        console.print(text, soft_wrap=True)
    return console.export_svg(title="jobctl")


def picture_of_report(page: Path, folder: Path) -> bytes | None:
    """Return the report as PNG; None without Chromium."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        return None
    target = folder / "report.png"
    argv = [browser, "--headless", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={folder / 'chromium'}"]
    argv += [f"--window-size={PAGE_SIZE}", f"--screenshot={target}", page.as_uri()]
    subprocess.run(argv, check=True, capture_output=True)
    return target.read_bytes()


def write(name: str, picture: bytes) -> None:
    """Write one picture, unless it is large."""
    if len(picture) > LARGEST:
        raise SystemExit(f"{name} has {len(picture):,} bytes; {LARGEST:,} are allowed")
    (HERE / name).write_bytes(picture)
    print(f"{HERE / name}: {len(picture):,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="session.svg, report.png, ui.png")
    wanted = parser.parse_args().names
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        session = Session(folder)
        live = train(session, folder)
        drawing = picture_of_session(session)
        page = session.folder / "report.html"
        shown = {"session.svg": drawing, "report.png": page.read_text()}  # of ui.png the text was looked at already
        made = {"session.svg": drawing.encode(), "report.png": picture_of_report(page, folder), "ui.png": live}
        for picture, content in made.items():
            if wanted and picture not in wanted:
                continue
            if picture in shown:
                refuse_private(shown[picture], folder)
            if content is None:
                print(f"no Chromium here: {picture} stays as it is")
            else:
                write(picture, content)


if __name__ == "__main__":
    main()
