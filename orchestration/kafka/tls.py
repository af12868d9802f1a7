"""Whether a broker expects TLS where the settings have none: librdkafka only sees a closed connection."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping


def wants_tls(kafka: Mapping[str, str]) -> str | None:
    """The first address of these client properties, if its broker expects TLS and they have none."""
    first = kafka.get("bootstrap.servers", "").split(",")[0].strip().rpartition("://")[2]
    host, _, port = first.rpartition(":")
    if "ssl" in kafka.get("security.protocol", "plaintext").lower() or not port.isdecimal():
        return None
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=1) as plain, context.wrap_socket(plain):
            return first
    except ssl.SSLError as error:
        # the handshake was refused, but in TLS
        return first if "ALERT" in (error.reason or "") else None
    except (OSError, OverflowError):
        return None
