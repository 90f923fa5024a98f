"""Hadoop's file systems of stores: which credentials the one has that a JVM keeps for a bucket.

Hadoop keeps a file system by scheme and bucket for the life of its JVM, with the credentials that it was made with. So
the first credentials of a bucket use it. Others, and renewed ones, name an S3 bucket by a scheme of their own, and for
that Hadoop keeps another. The connectors of Azure and Google know one scheme alone: there, others get a new file system
at each use.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from threading import Lock
from urllib.parse import urlsplit

S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_lock = Lock()
_holders: dict[str, str] = {}
"""By the root of a store, the digest of the options that its kept file system is made with."""
_OWN_SCHEME = re.compile("^s3-[0-9a-f]{12}://")
_SHARED = "a JVM that others use too"


def share_jvm() -> None:
    """From here on, Spark runs in a JVM that others use too: what file systems it keeps, nobody knows."""
    _holders[_SHARED] = ""


def own_scheme(uri: str, options: Mapping[str, str]) -> str | None:
    """The scheme by which Hadoop keeps a file system with these ``options``; None if that is the one of ``uri``."""
    if urlsplit(uri).scheme != "s3" or not options or (_SHARED not in _holders and _is_kept(uri, options)):
        return None
    return f"s3-{_digest(options)[:12]}"


def without_own_scheme(uri: str) -> str:
    """The URI of a file as users know it: :func:`own_scheme` undone."""
    return _OWN_SCHEME.sub("s3://", uri)


def uncached_options(uri: str, options: Mapping[str, str]) -> dict[str, str]:
    """The option that has Hadoop make a new file system, unless the one that it keeps has these ``options``.

    In a JVM that others use too, theirs are not known, and a new file system at each use would fill it in time.
    """
    if not options or _is_kept(uri, options):
        return {}
    return {f"fs.{urlsplit(uri).scheme}.impl.disable.cache": "true"}


def _is_kept(uri: str, options: Mapping[str, str]) -> bool:
    parts, digest = urlsplit(uri), _digest(options)
    with _lock:
        return _holders.setdefault(f"{parts.scheme}://{parts.netloc}", digest) == digest


def _digest(options: Mapping[str, str]) -> str:
    return hashlib.blake2b(json.dumps(sorted(options.items())).encode(), digest_size=16).hexdigest()
