"""What editors do by SSH, as far as their logs and manuals tell: the scripts that they run, and clients of their ports."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
from pathlib import Path

import pytest

PORT_FILE = "/tmp/editor/port"

# The server that an editor installs: it repeats what it gets, through each of its connections.
SERVER = f"""\
import os, socketserver
class Repeat(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
with Server(("127.0.0.1", 0), Repeat) as server:
    with open("{PORT_FILE}.new", "w") as file:
        file.write(str(server.server_address[1]))
    os.replace("{PORT_FILE}.new", "{PORT_FILE}")
    server.serve_forever()
"""
# As Remote-SSH of VS Code: `sh` reads it from standard input. It starts the server unless one runs, tells its port, and stays.
BOOTSTRAP = f"""\
echo "running under $$"
mkdir -p {os.path.dirname(PORT_FILE)}
if ! [ -s {PORT_FILE} ]; then
  python3 -c {shlex.quote(SERVER)} > /tmp/editor/log 2>&1 < /dev/null &
fi
count=0
while ! [ -s {PORT_FILE} ] && [ $count -lt 600 ]; do sleep 0.1; count=$((count + 1)); done
echo "listeningOn==$(cat {PORT_FILE})=="
while true; do sleep 180; printf ' '; done
"""

NODE = "jobctl-counter-1"

# Emacs opens a file by TRAMP, changes and saves it, looks into the folder, and runs commands beside it.
EMACS = f"""\
(progn
(require 'tramp)
(setq tramp-persistency-file-name nil make-backup-files nil auto-save-default nil create-lockfiles nil)
(defun say (what) (princ (format "%s\\n" what)))
(dolist (method '("ssh" "scp"))
  (let ((default-directory (format "/%s:{NODE}:/tmp/edited/" method)))
    (with-current-buffer (find-file-noselect "settings.py")
      (goto-char (point-min))
      (search-forward "steps = ")
      (insert "1")
      (save-buffer))
    (with-current-buffer (find-file-noselect "large.bin")
      (say (format "%s has %d bytes" method (buffer-size))))
    (say (directory-files default-directory nil "^[a-z]"))
    (say (process-file "sh" nil nil nil "-c" "exit 7"))
    (say (string-trim (shell-command-to-string "test -d /jobctl && cat settings.py"))))))
"""
# Vim does it by netrw, which copies the file with scp.
VIM = (
    *("+set nocompatible", "+runtime plugin/netrwPlugin.vim", f"+edit scp://{NODE}//tmp/edited/settings.py"),
    *("+%s/steps = /steps = 1/", "+write", "+qall!"),
)


def through_socks(proxy: int, host: str, port: int) -> socket.socket:
    """Return a connection to a port by `ssh -D`, as VS Code makes all of its own. Raises ConnectionError if it is refused."""
    made = socket.create_connection(("127.0.0.1", proxy), 60)
    made.sendall(b"\x05\x01\x00")
    name = host.encode()
    wanted = b"\x05\x01\x00\x03" + bytes([len(name)]) + name + port.to_bytes(2, "big")
    if made.recv(2) == b"\x05\x00":
        made.sendall(wanted)
        if made.recv(10)[1:2] == b"\x00":
            return made
    made.close()
    raise ConnectionError(f"{host}:{port} cannot be reached")


def program(name: str, package: str) -> str:
    """Return the path of an editor; the test skips where there is none."""
    found = shutil.which(name)
    if found is None:
        reason = f"{name} is not installed (apt-get install {package})"
        (pytest.fail if os.environ.get("JOBCTL_TOOLS") == "required" else pytest.skip)(reason)
    return str(found)


def clients(folder: Path, config: Path) -> str:
    """Return PATH with an `ssh` and an `scp` that read `config`, as those of a user do who includes it."""
    folder.mkdir()
    for name in ("ssh", "scp"):
        (folder / name).write_text(f'#!/bin/sh\nexec {shutil.which(name)} -F {shlex.quote(str(config))} "$@"\n')
        (folder / name).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
