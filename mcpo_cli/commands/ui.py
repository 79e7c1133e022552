"""`mcpo ui`: serve MLflow's UI for the configured store. `trackers/ui_server.py` decides which requests pass."""

import errno
import signal
import socket
import sys
from contextlib import suppress
from typing import Annotated

import typer

from mcpo_cli import extras
from mcpo_cli.commands.reply import Debug, json_option
from mcpo_cli.errors import ConfigError, StoreError

Port = Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")]
Host = Annotated[
    str,
    typer.Option(
        help="Address to listen on. The default can be reached from this machine only, by every local user, "
        "without a password. Any other address can be reached from other machines."
    ),
]
Json = Annotated[bool, json_option("url, store")]


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
    with _listening(host, port) as listener:
        store.check()
        from mcpo_cli.trackers.ui_server import LOOPBACK, Server

        if host not in LOOPBACK:
            console.talk(
                f"warning: --host {host} lets everyone who can reach this machine read, change and delete the store's "
                "contents; there is no password"
            )
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with suppress(KeyboardInterrupt):
            server = Server(uri, host, store.newest(), talks=debug)
            url = f"http://{host}:{port}/"
            console.talk(f"MLflow UI for {store.shown}: {url} (stop with Ctrl-C)")
            if as_json:
                console.print_json({"url": url, "store": store.shown})
                sys.stdout.flush()
            server.run(sockets=[listener])
            if not server.started:
                raise StoreError("the MLflow server did not start", fix="mcpo ui --debug, which shows its messages")
        console.talk("MLflow UI stopped")


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens at an address.

    Raises:
        ConfigError: the port is taken, or the address is not this machine's.
    """
    try:
        return socket.create_server((host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"port {port} of {host} is taken", fix=f"mcpo ui --port {_free(host)}") from error
        fix = "mcpo ui --host 127.0.0.1 --port 5000"
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}", fix=fix) from error


def _free(host: str) -> int:
    """A port that is free now."""
    with socket.create_server((host, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
