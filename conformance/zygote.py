"""A process that has torch imported and forks workers, so that a new one costs milliseconds.

It runs no tensor operation itself: a fork then copies no thread. Requests and answers are JSON
messages over a ``SOCK_SEQPACKET`` socket, which is its standard input:
``{"op": "fork", "log": path}`` with one file descriptor, the worker's connection -> ``{"pid"}``;
``{"op": "reap", "pid"}`` -> ``{"status"}``, as ``os.waitpid`` has it. It ends, and ends what it
started, when the other side closes the socket.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import os
import signal
import socket
import sys
from multiprocessing.connection import Connection

from conformance import worker


def main() -> None:
    """Serve requests. ``sys.argv[2:]`` names modules to import before the first fork."""
    control = socket.socket(fileno=os.dup(0))
    for name in sys.argv[2:]:
        with contextlib.suppress(Exception):  # a worker that needs it says clearly what is wrong
            importlib.import_module(name)
    children: set[int] = set()
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 65536, 1)
        if not data:
            break
        request = json.loads(data)
        if request["op"] == "fork":
            pid = os.fork()
            if pid == 0:
                control.close()
                _become_worker(descriptors[0], request["log"])
            os.close(descriptors[0])
            children.add(pid)
            answer = {"pid": pid}
        else:
            _, status = os.waitpid(request["pid"], 0)
            children.discard(request["pid"])
            answer = {"status": status}
        control.send(json.dumps(answer).encode())
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def _become_worker(descriptor: int, log: str) -> None:
    """Never returns. A session of its own, so that everything it starts dies with it."""
    os.setsid()
    with open(log, "ab", 0) as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        worker.serve(Connection(descriptor))
    finally:
        sys.stdout.flush()
        os._exit(0)
