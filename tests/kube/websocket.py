"""The server's side of an exec or a forwarded port: RFC 6455 frames with the channels of v4.channel.k8s.io and v5.channel.k8s.io."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
from typing import Any

_MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def accept(key: str) -> str:
    return base64.b64encode(hashlib.sha1(f"{key}{_MAGIC}".encode()).digest()).decode()


class Channels:
    """A websocket whose messages begin with the number of a channel."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self.reader, self.writer, self.lock = reader, writer, threading.Lock()

    def send(self, channel: int, data: bytes, opcode: int = 2) -> None:
        payload = bytes([channel]) + data if opcode == 2 else data
        size = len(payload)
        if size < 126:
            head = bytes([0x80 | opcode, size])
        elif size < 65536:
            head = bytes([0x80 | opcode, 126]) + struct.pack(">H", size)
        else:
            head = bytes([0x80 | opcode, 127]) + struct.pack(">Q", size)
        with self.lock, contextlib.suppress(OSError):
            self.writer.write(head + payload)
            self.writer.flush()

    def receive(self) -> bytes | None:
        """Return the next message with its channel, None when the client has closed."""
        message = b""
        while True:
            head = self.reader.read(2)
            if len(head) < 2:
                return None
            size = head[1] & 0x7F
            if size == 126:
                size = struct.unpack(">H", self.reader.read(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", self.reader.read(8))[0]
            mask = self.reader.read(4) if head[1] & 0x80 else b"\0\0\0\0"
            data = unmasked(self.reader.read(size), mask)
            if head[0] & 0x0F == 8:
                return None
            if head[0] & 0x0F in (0, 1, 2):
                message += data
                if head[0] & 0x80:
                    return message


def unmasked(data: bytes, mask: bytes) -> bytes:
    """Return what a client has masked: as one number, since a loop over megabytes takes seconds of a busy core."""
    number = int.from_bytes(data, "big") ^ int.from_bytes((mask * (len(data) // 4 + 1))[: len(data)], "big")
    return number.to_bytes(len(data), "big")


def execute(channels: Channels, argv: list[str], env: dict[str, str], tty: bool, takes_input: bool, v5: bool) -> None:
    """Run a command as a container would, joined to the channels, and tell how it ended."""
    master = slave = None
    if tty:
        master, slave = pty.openpty()
    try:
        process = subprocess.Popen(
            argv,
            stdin=slave if tty else subprocess.PIPE if takes_input else subprocess.DEVNULL,
            stdout=slave if tty else subprocess.PIPE,
            stderr=slave if tty else subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
    except OSError as error:
        failure = {
            "metadata": {},
            "status": "Failure",
            "reason": "InternalError",
            "message": f"error executing command: {error}",
        }
        channels.send(3, json.dumps(failure).encode())
        channels.send(0, struct.pack(">H", 1000), opcode=8)
        return
    if slave is not None:
        os.close(slave)
    threading.Thread(target=_feed, args=(channels, process, master, v5), daemon=True).start()
    if master is not None:
        _drain(channels, {master: 1})
    else:
        assert process.stdout is not None
        assert process.stderr is not None
        _drain(channels, {process.stdout.fileno(): 1, process.stderr.fileno(): 2})
    code = process.wait()
    channels.send(3, json.dumps(_result(code if code >= 0 else 128 - code)).encode())
    channels.send(0, struct.pack(">H", 1000), opcode=8)


def forward(channels: Channels, port: int) -> None:
    """Join the channels of a port (0 its data, 1 what is wrong with it) to whatever listens there."""
    for channel in (0, 1):
        channels.send(channel, struct.pack("<H", port))
    try:
        with socket.create_connection(("127.0.0.1", port)) as there:
            threading.Thread(target=_send_on, args=(channels, there), daemon=True).start()
            while data := there.recv(65536):
                channels.send(0, data)
    except OSError as error:
        channels.send(1, f"failed to connect to localhost:{port}: {error}".encode())
    channels.send(0, struct.pack(">H", 1000), opcode=8)


def _send_on(channels: Channels, there: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while (message := _received(channels)) is not None:
            there.sendall(message[1:])
        there.shutdown(socket.SHUT_RDWR)


def _drain(channels: Channels, files: dict[int, int]) -> None:
    while files:
        for number in select.select(list(files), [], [])[0]:
            try:
                data = os.read(number, 65536)
            except OSError:
                data = b""  # the other end of a terminal has been closed
            if data:
                channels.send(files[number], data)
            else:
                del files[number]


def _received(channels: Channels) -> bytes | None:
    try:
        return channels.receive()
    except ValueError:  # the command has ended, and its connection with it
        return None


def _feed(channels: Channels, process: Any, master: int | None, v5: bool) -> None:
    while (message := _received(channels)) is not None:
        channel, data = message[0], message[1:]
        if channel == 0 and master is not None:
            os.write(master, data)
        elif channel == 0 and process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # of what does not read all, and has ended
                process.stdin.write(data)
                process.stdin.flush()
        elif channel == 4 and master is not None:
            size = json.loads(data)
            fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", size["Height"], size["Width"], 0, 0))
        elif channel == 255 and v5 and process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _result(code: int) -> dict[str, Any]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }
