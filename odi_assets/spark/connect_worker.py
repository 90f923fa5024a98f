"""``odi-connect-python``: the Python of a Spark Connect server, for ``PYSPARK_PYTHON`` in the server's environment.

The process in which a server runs the function of a ``foreachBatch`` prints the URL that it connects to, and with it
the server's token, into the server's log (pyspark 4.2, ``foreach_batch_worker.py``). Started with this in place of
``python``, that process prints the URL without the token. Every other process is started as it would be without it.
"""

from __future__ import annotations

import os
import re
import runpy
import sys
from typing import TextIO

_WORKER = "pyspark.sql.connect.streaming.worker.foreach_batch_worker"
_TOKEN = re.compile(r"(?<=token=)[^;\s]+")


def without_tokens(text: str) -> str:
    """``text`` with three dots in the place of each token of an address."""
    return _TOKEN.sub("…", text)


class Redacted:
    """A text stream that tokens are taken out of. Everything else is passed on to the wrapped stream."""

    hides_tokens = True

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write ``text``, with three dots in the place of each token."""
        self._stream.write(without_tokens(text))
        return len(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


TOKEN_REMEDY = (
    "start the server with PYSPARK_PYTHON=odi-connect-python in its environment, take the token out of its log, and "
    "give it another"
)


def token_is_logged() -> bool:
    """Whether this process runs a function of a ``foreachBatch`` for a server whose token it has printed."""
    has_token = "token=" in os.environ.get("SPARK_CONNECT_LOCAL_URL", "")
    return has_token and not getattr(sys.stdout, "hides_tokens", False)


def main() -> None:
    """Run what the command line says, as ``python`` would."""
    if sys.argv[1:3] != ["-m", _WORKER]:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    sys.stdout, sys.stderr = Redacted(sys.stdout), Redacted(sys.stderr)
    sys.argv = sys.argv[2:]
    runpy.run_module(_WORKER, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
