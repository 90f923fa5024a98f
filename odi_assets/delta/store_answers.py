"""What an object store answered, read from deltalake's errors.

deltalake raises ``OSError`` or ``DeltaError`` for whatever went wrong in a store and keeps no field of it: the HTTP
status is in the text alone, in the words of Rust's ``object_store``. Nothing else is decided by words.
"""

from __future__ import annotations

import re
from enum import Enum, auto

_STACK = re.compile(r"\n\s+0: .*", re.DOTALL)
"""What RUST_BACKTRACE adds."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_JOINT = re.compile(r"\s*\n\s*↳\s*")
_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>([\w.]+)</Code>")
_BODY = re.compile(r"(: )?\s*(<\?xml|<Error|<html|<!doctype).*", re.IGNORECASE | re.DOTALL)
_NO_CLIENT = re.compile(r"Generic \w+ error: ")
_BUSY = frozenset({408, 409, 412, 425, 429})


class Answer(Enum):
    """What can be done about it."""

    UNKNOWN = auto()
    """The words are not those of an object store's client."""
    SILENCE = auto()
    """The store did not answer, or had too much to do: a later call may succeed."""
    DENIED = auto()
    """Key, token or signature are none, are wrong, have expired, or do not give the right."""
    NO_BUCKET = auto()
    """There is no such bucket or container."""
    NO_OBJECT = auto()
    """One object is not there; the store is."""
    REFUSED = auto()
    """The request was understood and refused: another region, a name that cannot be."""
    UNUSABLE = auto()
    """The options made no client: nothing was sent."""


def is_remote(uri: str) -> bool:
    """Whether a URI is one of an object store, and not of this machine."""
    return "://" in uri and not uri.lower().startswith("file:")


def plain(error: BaseException) -> str:
    """The text of deltalake's error on one line, without colours, Rust's stack and the body of the answer."""
    text = _JOINT.sub(": ", _COLOURS.sub("", _STACK.sub("", str(error))))
    code = _CODE.search(text)
    text = _BODY.sub("", text).strip()
    return f"{text} ({code[1]})" if code else text


def answer(error: BaseException) -> Answer:
    """What the store answered, when ``error`` came of a call on a remote table."""
    text = _JOINT.sub(": ", _COLOURS.sub("", str(error)))
    status = _STATUS.search(text)
    if status:
        return _of_status(int(status[1]), text)
    if "loading credentials" in text:
        return Answer.DENIED
    if "builder error" in text:
        return Answer.UNUSABLE
    if "Error performing" in text or "HTTP error" in text:
        return Answer.SILENCE
    return Answer.UNUSABLE if _NO_CLIENT.match(text) else Answer.UNKNOWN


def _of_status(status: int, text: str) -> Answer:
    if status in (401, 403) or "ExpiredToken" in text:
        return Answer.DENIED
    if status == 404:
        listing = "Error performing list request" in text or "NoSuchBucket" in text or "ContainerNotFound" in text
        return Answer.NO_BUCKET if listing else Answer.NO_OBJECT
    return Answer.SILENCE if status >= 500 or status in _BUSY else Answer.REFUSED
