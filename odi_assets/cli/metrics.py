"""``odi metrics``: figures of the nodes for Prometheus, on stdout, in a file, or served."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry, generate_latest, start_http_server

from odi_assets.cli.terminal.exit_codes import FAILED
from odi_assets.cli.terminal.options import Settings
from odi_assets.cli.terminal.output import data, note
from odi_assets.errors import ConfigError
from odi_assets.monitoring.gauges import ProjectGauges
from odi_assets.nodes.stop_signals import stop_signals
from odi_assets.util.durable import write_file


def metrics(
    settings: Settings,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Write them there, whole, for a collector of text files."),
    ] = None,
    serve: Annotated[
        str | None,
        typer.Option("--serve", metavar="[HOST:]PORT", help="Serve them until SIGTERM or Ctrl-C; each scrape looks."),
    ] = None,
) -> None:
    """Print figures of all nodes for Prometheus: lag, rows, failures, state of streams. Nothing is run."""
    if file is not None and serve is not None:
        raise ConfigError("`--file` and `--serve` are two ways", fix="name one of the two")
    registry, gauges = CollectorRegistry(), ProjectGauges(settings.project, note)
    registry.register(gauges)
    if serve is not None:
        # Mistakes of the project file are said now, and not at the first scrape.
        settings.project()
        _serve(registry, *_address(serve))
        return
    text = generate_latest(registry).decode("utf-8")
    if file is None:
        data(text.rstrip("\n"))
    else:
        try:
            write_file(file, text)
        except OSError as error:
            raise ConfigError(
                f"{file} cannot be written: {error.strerror}", fix="name a file in a folder that is there and writable"
            ) from error
    if not gauges.is_up:
        raise typer.Exit(FAILED)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise ConfigError(f"`--serve {text}` names no port", fix="write it as --serve 9464, or --serve 127.0.0.1:9464")
    return host.strip("[]") or "127.0.0.1", int(port)


def _serve(registry: CollectorRegistry, host: str, port: int) -> None:
    ended = threading.Event()
    with stop_signals() as handled_by:
        try:
            server, thread = start_http_server(port, host, registry)
        except OSError as error:
            raise ConfigError(
                f"{host}:{port} cannot be served: {error.strerror}", fix="name another port, or end what has this one"
            ) from error
        handled_by(ended.set)
        note(f"Serving http://{host}:{port}/metrics")
        ended.wait()
        server.shutdown()
        thread.join()
