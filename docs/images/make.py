"""Makes the pictures of the README from one real job: `python docs/images/make.py`, in an environment with the extra `examples`.

The job of `examples/torch-resnet` runs on this machine, loses a process on purpose, and trains to its end. `session.svg`
shows the commands and what they printed. `report.png` shows the page of `jobctl report`; it needs Chromium.
"""

from __future__ import annotations

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

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "torch-resnet"
JOB = "digits"
COLUMNS = 116
LARGEST = 200_000  # bytes of a picture
PAGE_SIZE = "1000,1230"  # of the report, in CSS pixels
PATIENCE = 900  # seconds until the job has trained


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
        }
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


def train(session: Session) -> None:
    """Bring the job up, kill one of its processes, and see it train to the end."""
    session.show("up")
    try:
        session.wait_for_step(130)
        session.show("drill", "--yes")
        session.wait_for_step(200)
        session.show("status")
        session.run("wait")
        session.shown.append(Text.assemble(("$ ", "bold green"), ("jobctl events", "bold")))
        events = session.run("events").strip("\n").splitlines()
        session.shown.append(Text.from_ansi("\n".join(events)))
        session.run("report", "-o", "report.html")
    finally:
        session.run("down")


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
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        session = Session(folder)
        train(session)
        drawing = picture_of_session(session)
        page = session.folder / "report.html"
        for private in (socket.gethostname(), str(Path.home()), name):
            if private in drawing or private in page.read_text():
                raise SystemExit(f"{private!r} would be in a picture")
        write("session.svg", drawing.encode())
        if (png := picture_of_report(page, folder)) is None:
            print("no Chromium here: report.png stays as it is")
        else:
            write("report.png", png)


if __name__ == "__main__":
    main()
