"""A server that speaks S3, or Google's XML protocol, in a process of its own: ``python -m … s3|gcs``.

It prints its port, and ends when its standard input does, so that it never outlives the tests. One request is answered
at a time: "write this object if there is none" is then as atomic as in the stores themselves.

The S3 server is moto's. Google's XML protocol is S3's but for the names of some headers, so its server is moto's
behind a translation of what Rust's ``object_store`` sends: the condition on an object's generation.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

SIGNED_BY_SOMEONE = "AWS4-HMAC-SHA256 Credential=a/20130101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


def as_google(s3: Application) -> Application:
    """Answer Google's XML requests; 0 is the generation of an object that is not there."""

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        environ["HTTP_AUTHORIZATION"] = SIGNED_BY_SOMEONE
        if environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", None) == "0":
            environ["HTTP_IF_NONE_MATCH"] = "*"
        return s3(environ, start_response)

    return answer


def serve(dialect: str) -> None:
    application: Application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, as_google(application) if dialect == "gcs" else application)
    threading.Thread(target=end_with_the_tests, daemon=True).start()
    print(server.server_port, flush=True)
    server.serve_forever()


def end_with_the_tests() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
