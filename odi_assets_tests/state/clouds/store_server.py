"""A server that speaks S3, or Google's XML protocol, in a process of its own: ``python -m … s3|gcs``.

It prints its port, and ends when its standard input does, so that it never outlives the tests. One request is answered
at a time: "write this object if there is none" is then as atomic as in the stores themselves.

The S3 server is moto's. Google's XML protocol is S3's but for the names of some headers, so its server is moto's
behind a translation of what Rust's ``object_store`` sends: the condition on an object's generation.

The store fails on demand: ``PUT /-/fail/<how>/<times>`` makes the next requests fail (``busy``: 503, not carried out),
or just the next writes to a Delta log (``busy-commit``, and ``lost-answer``: 503, carried out all the same).
``silent-after-commit`` loses the answer of the next such write, and is busy for as many requests after it.
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


class Faulty:
    """A store that fails as it is told to."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._how, self._left = "", 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path.startswith("/-/fail/"):
            self._how, times = path.split("/")[3:]
            self._left = int(times)
            start_response("200 OK", [])
            return [b""]
        commits = environ["REQUEST_METHOD"] == "PUT" and "/_delta_log/" in path
        if self._left == 0 or not (commits or self._how == "busy"):
            return self._application(environ, start_response)
        if self._how in ("lost-answer", "silent-after-commit"):
            list(self._application(environ, lambda *_: None))
        if self._how == "silent-after-commit":
            self._how = "busy"
        else:
            self._left -= 1
        start_response("503 Service Unavailable", [("Content-Type", "application/xml")])
        return [b"<Error><Code>SlowDown</Code></Error>"]


def serve(dialect: str) -> None:
    application: Application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, Faulty(as_google(application) if dialect == "gcs" else application))
    threading.Thread(target=end_with_the_tests, daemon=True).start()
    print(server.server_port, flush=True)
    server.serve_forever()


def end_with_the_tests() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
