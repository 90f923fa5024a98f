"""What a checkpoint says of places, where its inputs' files or itself are elsewhere now.

Spark knows a landing file by its URI. A copy of the checkpoint says of the same batches that they read the same files,
where these are now; the checkpoint itself stays as it was. Of ``transformWithState``, the descriptions of the state
name files of the checkpoint by their whole paths (Spark 4.2, ``OperatorStateMetadataV2``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from urllib.parse import quote

from odi_assets.connections.location import Location
from odi_assets.streams.query.progress_log import ProgressLog
from odi_assets.streams.query.truncate import CheckpointFolder
from odi_assets.tables.reader import file_uri_key

_AS_IN_JAVA = "/:@&=+$,;_-!.~'()*"
"""ASCII that ``java.net.URI`` leaves in a path as it is. It does so with all that is not ASCII, too."""

_SCHEMAS = "_stateSchema"


def relocated(log: ProgressLog, location: Location, folders: Mapping[str, tuple[str, str]]) -> ProgressLog:
    """Copy the checkpoint of ``log`` to ``location``, and return the log of the copy.

    Args:
        folders: by input, the folder in which its files were read, and the one that they are in now, as
            ``file_uri_key`` has them.
    """
    folder = CheckpointFolder(location)
    folder.put_back(log.location)
    for name, (former, now) in folders.items():
        folder.rewrite(f"sources/{name}", partial(_moved, former, now))
    return ProgressLog(location)


def name_own_schemas(checkpoint: Location) -> None:
    """Let the descriptions of a checkpoint's state name its own schemas, wherever it is now.

    Raises:
        CheckpointError: it cannot be looked at.
    """
    folder = CheckpointFolder(checkpoint)
    own = checkpoint.uri.rstrip("/")
    uri = f"file:{own}" if checkpoint.is_local else own
    for operator in filter(str.isdecimal, ProgressLog(checkpoint).names("state")):
        schemas = f"{uri}/state/{operator}/{_SCHEMAS}/"
        folder.rewrite(f"state/{operator}/_metadata/v2", partial(_with_schemas_in, schemas))


def _with_schemas_in(folder: str, text: str) -> str:
    version, newline, rest = text.partition("\n")
    try:
        described = json.loads(rest)
    except ValueError:
        # Torn: Spark, which reads it next, says what is wrong.
        return text
    for store in described.get("stateStoreInfo") or ():
        paths = store.get("stateSchemaFilePaths")
        if paths:
            store["stateSchemaFilePaths"] = [folder + path.rpartition(f"/{_SCHEMAS}/")[2] for path in paths]
    return version + newline + json.dumps(described, ensure_ascii=False, separators=(",", ":"))


def _moved(former: str, now: str, text: str) -> str:
    version, *lines = text.split("\n")
    return "\n".join([version, *(_moved_entry(former, now, line) if line.strip() else line for line in lines)])


def _moved_entry(former: str, now: str, line: str) -> str:
    entry = json.loads(line)
    known = file_uri_key(str(entry["path"]))
    if known.startswith(f"{former}/"):
        entry["path"] = spark_uri(now + known.removeprefix(former))
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":"))


def spark_uri(path: str) -> str:
    """The URI by which Spark lists the file of a path or a URI without escapes: it compares the texts."""
    scheme, colon, rest = path.partition("://") if "://" in path else ("file", "://", path)
    authority, slash, below = ("", "/", rest.lstrip("/")) if scheme == "file" else rest.partition("/")
    escaped = "".join(character if ord(character) > 127 else quote(character, safe=_AS_IN_JAVA) for character in below)
    return f"{scheme}{colon}{authority}{slash}{escaped}"
