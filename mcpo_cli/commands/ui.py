"""`mcpo ui`: serve MLflow's UI for the configured store.

MLflow itself would answer to any name that begins like a private address (`10.evil.example`), by which a web page can
reach it through the reader's browser (DNS rebinding), and would store files that anybody sends. Here it answers only to
the names of this machine, and `trackers/ui_server.py` decides which requests pass.
"""

import errno
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

import mcpo_cli
from mcpo_cli import extras
from mcpo_cli.commands.reply import Debug, Json
from mcpo_cli.errors import ConfigError, StoreError

START_SECONDS = 60.0
HINT = 'choose "Model training" on the left; MLflow opens with its pages for language-model applications'
SEE_WHY = "mcpo ui --debug, which shows the server's messages"

Port = Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")]
LOOPBACK = ("127.0.0.1", "localhost")
Host = Annotated[
    str,
    typer.Option(
        help="Address to listen on. The default can be reached from this machine only, by every local user, "
        "without a password. Any other address can be reached from other machines."
    ),
]


def ui(port: Port = 5000, host: Host = "127.0.0.1", as_json: Json = False, debug: Debug = False) -> None:
    """Browse the runs in MLflow's UI until Ctrl-C. Anyone who can reach the port can edit and delete runs."""
    from mcpo_cli.commands import console
    from mcpo_cli.trackers import resolve

    extras.require("mlflow", "mcpo ui")
    from mcpo_cli.trackers.mlflow import Store

    uri = resolve("")
    if uri is None:
        raise ConfigError("MLFLOW_TRACKING_URI=offline: there is no store to show", fix="unset MLFLOW_TRACKING_URI")
    store = Store(uri)
    if store.is_server:
        raise ConfigError(f"the store is a server that has its own UI: open {store.shown} in a browser")
    if store.database and not store.database.exists():
        raise ConfigError(
            f"{store.database} does not exist: nothing has been logged yet",
            fix="mcpo train scale=smoke, or mcpo runs sync for runs that were trained offline",
        )
    if not _is_free(host, port):
        raise ConfigError(f"port {port} of {host} is taken", fix=f"mcpo ui --port {_nearest_free(host, port)}")
    store.check()
    if host not in LOOPBACK:
        console.talk(
            f"warning: --host {host} lets everyone who can reach this machine read, change and delete the store's "
            "contents; there is no password"
        )
    # In a new session, Ctrl-C reaches only us, and we end the server with all its processes.
    command = [sys.executable, "-P", "-m", "mcpo_cli.trackers.ui_server", host, str(port), str(os.getpid())]
    path = [str(Path(mcpo_cli.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        # Not on the command line, where others could read the password.
        "_MLFLOW_SERVER_FILE_STORE": uri,
        "_MLFLOW_SERVER_REGISTRY_STORE": uri,
        "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(_answers_to(host)),
        "MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE": "false",
        "_MLFLOW_SERVER_SERVE_ARTIFACTS": "false",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "PYTHONPATH": os.pathsep.join(path),
    }
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    output = sys.stderr if debug else subprocess.DEVNULL
    server = subprocess.Popen(command, env=environment, start_new_session=True, stdout=output, stderr=output)
    try:
        _wait_until_up(server, host, port)
        url = f"http://{host}:{port}/#/experiments"
        console.talk(f"MLflow UI for {store.shown}: {url} (stop with Ctrl-C)\n{HINT}")
        if as_json:
            console.print_json({"url": url, "store": store.shown})
            sys.stdout.flush()
        server.wait()
        raise StoreError(f"the MLflow server stopped unexpectedly (exit code {server.returncode})", fix=SEE_WHY)
    except KeyboardInterrupt:
        console.talk("MLflow UI stopped")
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait()


def _answers_to(host: str) -> list[str]:
    """MLflow's patterns of the host names that it answers to; with any port, because a tunnel may use another."""
    import psutil

    names, everywhere = {*LOOPBACK, host}, False
    with suppress(ValueError):  # the name of a machine
        everywhere = ipaddress.ip_address(host).is_unspecified
    if everywhere:
        addresses = [address for found in psutil.net_if_addrs().values() for address in found]
        names |= {one.address for one in addresses if one.family == socket.AF_INET}
        names |= {socket.gethostname(), socket.getfqdn()}
    return [pattern for name in sorted(names) for pattern in (name, f"{name}:*")]


def _wait_until_up(server: subprocess.Popen[bytes], host: str, port: int) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex((host, port)) == 0:
                return
        time.sleep(0.1)
    raise StoreError(f"the MLflow server did not start at {host}:{port}", fix=SEE_WHY)


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            fix = "mcpo ui --host 127.0.0.1 --port 5000"
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}", fix=fix) from error
    return True


def _nearest_free(host: str, port: int) -> int:
    return next(free for free in chain(range(port + 1, 65536), range(port - 1, 1023, -1)) if _is_free(host, free))
