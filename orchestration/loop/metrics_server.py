"""The server that Prometheus asks for the metrics: one thread, whatever the clients do."""

from __future__ import annotations

import logging
import socket
import socketserver
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Any, cast

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from orchestration.logs import event

log = logging.getLogger(__name__)

# Seconds that a client may take for its request and for reading the answer.
_PATIENCE = 5


class MetricsServer(socketserver.TCPServer):
    """Answers one scrape after the other: however many ask, and however slowly, it is one thread."""

    allow_reuse_address = True

    def __init__(self, address: str, port: int, registry: CollectorRegistry) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.registry = registry
        super().__init__((address, port), _Scrape)

    def handle_error(self, *_: object) -> None:
        """A client that hangs up, or sends no request, is logged at DEBUG only."""
        event(log, logging.DEBUG, "scrape_failed", exc_info=True)


class _Scrape(BaseHTTPRequestHandler):
    def handle(self) -> None:
        """Disconnects a client that takes too long, even if it keeps sending single bytes."""
        patience = threading.Timer(_PATIENCE, self._hang_up)
        patience.daemon = True
        patience.start()
        try:
            super().handle()
        finally:
            patience.cancel()

    def _hang_up(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        """Answers a scrape."""
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404, "metrics are at /metrics")
            return
        body = generate_latest(cast(MetricsServer, self.server).registry)
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE_LATEST)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Scrapes are not logged."""
