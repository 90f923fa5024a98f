"""Servers that take alerts: one of the web, and one of mail."""

from __future__ import annotations

import base64
import json
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email import message_from_string, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Web:
    """A server of the web that answers all posts with ``status``.

    Attributes:
        posts: the path and the JSON of each.
    """

    def __init__(self) -> None:
        self.posts: list[tuple[str, Any]] = []
        self.status, self.port = 200, 0

    @property
    def bodies(self) -> list[Any]:
        return [body for _, body in self.posts]


@contextmanager
def web() -> Iterator[Web]:
    """A server of the web on a free port."""
    found = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if found.status == 200:
                found.posts.append((self.path, body))
            self.send_response(found.status)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.port = server.server_port
        with _served(server):
            yield found


class Mail:
    """A mail server.

    Attributes:
        messages: what was handed to it.
        passwords: those that sign in.
    """

    def __init__(self) -> None:
        self.messages: list[EmailMessage] = []
        self.passwords: set[str] = set()
        self.port = 0


@contextmanager
def mail(certificate: Path | None = None) -> Iterator[Mail]:
    """A mail server on a free port; with a certificate, it speaks TLS and wants a password."""
    found = Mail()
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            talk = self.request if context is None else context.wrap_socket(self.request, server_side=True)
            lines = talk.makefile("r", newline="\r\n", encoding="utf-8")

            def say(text: str) -> None:
                talk.sendall(f"{text}\r\n".encode())

            say("220 ready")
            for line in lines:
                word = line.split(maxsplit=1)[0].upper()
                if word == "EHLO":
                    say("250-here\r\n250 AUTH PLAIN" if context else "250 here")
                elif word == "AUTH":
                    given = base64.b64decode(line.split()[-1]).decode().split("\0")[-1]
                    say("235 welcome" if given in found.passwords else f"535 not with {given}")
                elif word == "DATA":
                    say("354 go on")
                    text = "".join(iter(lambda: next(lines), ".\r\n"))
                    message = message_from_string(text, policy=policy.default)
                    found.messages.append(message)  # type: ignore[arg-type]
                    say("250 taken")
                elif word == "QUIT":
                    say("221 bye")
                    break
                else:
                    say("250 well")

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that hangs up is no trouble."""

    with Server(("127.0.0.1", 0), Handler) as server:
        found.port = server.server_address[1]
        with _served(server):
            yield found


@contextmanager
def _served(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


def certificate_for_localhost(folder: Path) -> Path:
    """A file with a key and a certificate that it signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "certificate.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return file
