"""A PostgreSQL server of the test's own: Debian's, in a folder of its own, on loopback, gone after the block."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = [
    *sorted(Path("/usr/lib/postgresql").glob("*/bin")),
    *(Path(p).parent for p in filter(None, [shutil.which("postgres")])),
]
WHY_NOT = "there is no PostgreSQL on this machine (Debian: apt-get install postgresql)"


@contextmanager
def serving():
    """The URL of an empty database; PostgreSQL refuses to be run by root, and is run by another user then."""
    user = {"user": find_user()} if os.getuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="ragc-postgres-"))
    if user:
        shutil.chown(folder, user["user"])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    programs, data = PROGRAMS[-1], folder / "data"
    quiet = {**user, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    init = [
        programs / "initdb",
        "-D",
        data,
        "-U",
        "ragc",
        "--auth=trust",
        "--no-sync",
        "-E",
        "UTF8",
        "--locale=C.UTF-8",
    ]
    options = f"-h 127.0.0.1 -p {port} -c unix_socket_directories= -c fsync=off -c log_min_messages=panic"
    try:
        subprocess.run(init, check=True, **quiet)
        subprocess.run([programs / "pg_ctl", "-D", data, "-o", options, "-w", "-t", "60", "start"], check=True, **quiet)
        try:
            yield f"postgresql+psycopg://ragc@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop"], check=True, **quiet)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_user():
    """A user of this machine without rights: PostgreSQL's own, else nobody."""
    known = {one.pw_name for one in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in known)
