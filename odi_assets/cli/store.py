"""``odi store``: versioned key-value stores, of nodes and of programs."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odi_assets.cli.terminal.confirm import require_consent
from odi_assets.cli.terminal.exit_codes import FAILED
from odi_assets.cli.terminal.options import DryRunOption, JsonOption, Settings, YesOption
from odi_assets.cli.terminal.output import Column, data, data_json, data_table, moment, note
from odi_assets.connections.location import Location
from odi_assets.errors import ConfigError, StateError
from odi_assets.util.words import counted

if TYPE_CHECKING:
    from odi_assets.store import StateStore, StoreChange
    from odi_assets.store.check import DamagedFile
    from odi_assets.store.provider import StateStoreProvider

_STORES = (
    Column("store", lambda store: store.uri),
    Column("latest version", lambda store: str(store.latest), "right"),
    Column("committed (UTC)", lambda store: store.committed_at and moment(store.committed_at)),
    Column("writer", lambda store: store.writer, spare=True),
    Column("files", lambda store: store.files, "right"),
    Column("bytes", lambda store: store.bytes, "right", spare=True),
)
_VERSIONS = (
    Column("version", lambda row: str(row["version"]), "right"),
    Column("committed (UTC)", lambda row: row["committed_at"]),
    Column("writer", lambda row: row["writer"]),
    Column("snapshot", lambda row: "yes" if row["snapshot"] else None),
    Column("cannot be read", lambda row: row["cannot_be_read"], optional=True),
)
_ENTRIES = (Column("key", lambda row: row[0], wrap=True), Column("value", lambda row: row[1], wrap=True))
_CHANGES = (
    Column("version", lambda row: str(row[0]), "right"),
    Column("key", lambda row: row[1], wrap=True),
    Column("value", lambda row: row[2], wrap=True),
)
_DAMAGED = (
    Column("file", lambda file: file.path),
    Column("version", lambda file: _span(file), "right"),
    Column("what is wrong", lambda file: file.why, wrap=True),
)

PathArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATH", help="A store's folder, CONNECTION:PATH, or a node that has a store: NODE or PIPELINE.NODE."
    ),
]
VersionOption = Annotated[
    int | None, typer.Option("--version", "-v", metavar="N", min=0, help="A version; the latest unless given.")
]
LimitOption = Annotated[int, typer.Option("--limit", metavar="N", min=0, help="At most this many; 0: all.")]
HexOption = Annotated[bool, typer.Option("--hex", help="Keys and values are hexadecimal; else they are UTF-8 text.")]


def list_(
    settings: Settings,
    folder: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATH]", help="A folder or CONNECTION:PATH; the stores of the project's nodes if none."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the state stores in a folder and below it."""
    from odi_assets.store.find import stores_below

    location = settings.project().stores if folder is None else _location(settings, folder)
    stores = stores_below(location)
    if stores is None and folder is not None:
        raise ConfigError(
            f"there is no folder {location.uri}", fix="name one that holds state stores", uri=location.uri
        )
    stores = stores or []
    if as_json:
        data_json(
            [{**vars(store), "committed_at": store.committed_at and store.committed_at.isoformat()} for store in stores]
        )
    elif stores:
        data_table(_STORES, stores)
    else:
        note(f"There is no state store in {location.uri}.")


def versions(settings: Settings, path: PathArgument, limit: LimitOption = 0, as_json: JsonOption = False) -> None:
    """List the versions of a store: those that can be read and, with the reason, those that cannot."""
    report = _open(settings, path).check()
    rows: list[dict[str, Any]] = [
        {
            "version": commit.version,
            "committed_at": commit.committed_at.isoformat() if as_json else moment(commit.committed_at),
            "writer": commit.writer,
            "snapshot": commit.snapshot == commit.version,
            "cannot_be_read": None,
        }
        for commit in report.readable
    ]
    nothing = {"committed_at": None, "writer": None, "snapshot": False}
    rows += [
        {"version": version, **nothing, "cannot_be_read": f"version {culprit} is damaged"}
        for version, culprit in report.unreadable.items()
    ]
    rows.sort(key=lambda row: row["version"])
    shown = rows[-limit:] if limit else rows
    if as_json:
        data_json(shown)
    elif rows:
        data_table(_VERSIONS, shown)
    else:
        note("No version was committed yet.")
    _tell_left(len(rows) - len(shown), "earlier version")
    if report.unreadable:
        note(f"{counted(len(report.unreadable), 'version')} cannot be read: `odi store check {path}` says why.")


def get(
    settings: Settings,
    path: PathArgument,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key, as text, or hexadecimal with --hex.")],
    version: VersionOption = None,
    as_hex: HexOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print the value of one key."""
    provider = _open(settings, path)
    store = _get_store(provider, version)
    at, value = store.version, store.get(_bytes(key, as_hex))
    if value is None:
        raise StateError(
            f"version {at} of {provider.uri} has no key {key}",
            fix=f"`odi store scan {path}` shows its keys" + ("" if as_hex else "; --hex is for keys that are no text"),
            uri=provider.uri,
            version=at,
        )
    if as_json:
        data_json({"key": _json(_bytes(key, as_hex)), "value": _json(value), "version": at})
    else:
        data(_text(value, as_hex))


def scan(
    settings: Settings,
    path: PathArgument,
    prefix: Annotated[str, typer.Option("--prefix", "-p", metavar="P", help="Only keys that begin with this.")] = "",
    version: VersionOption = None,
    since: Annotated[
        int | None,
        typer.Option("--since", metavar="N", min=0, help="What the versions after this one changed, one by one."),
    ] = None,
    limit: LimitOption = 100,
    as_hex: HexOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print keys and values in order of the keys, or what versions changed; a removed key has no value."""
    provider = _open(settings, path)
    store, start = _get_store(provider, version), _bytes(prefix, as_hex)
    at = store.version
    if since is not None:
        if _get_store(provider, since).version > at:
            raise ConfigError(f"version {at} comes before version {since}", fix="give an earlier version to --since")
        changes = [change for change in provider.changes(since, at) if change.key.startswith(start)]
        _show_changes(changes, limit, as_hex, as_json)
        return
    entries = store.prefix_scan(start)
    shown_entries = list(islice(entries, limit or None))
    if as_json:
        data_json([{"key": _json(key), "value": _json(value)} for key, value in shown_entries])
    elif shown_entries:
        data_table(_ENTRIES, [(_text(key, as_hex), _text(value, as_hex)) for key, value in shown_entries])
    else:
        note(f"Version {at} has no such key." if prefix else f"Version {at} is empty.")
    _tell_left(sum(1 for _ in entries), "key")


def check(
    settings: Settings,
    path: PathArgument,
    repair: Annotated[bool, typer.Option("--repair", help="Rebuild damaged files from those that are not.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Read all files of a store, and compare them with what was committed. Exits with 1 if something is damaged."""
    from dataclasses import asdict

    report = _open(settings, path).check(repair=repair)
    if as_json:
        data_json(
            {
                "readable": [commit.version for commit in report.readable],
                "unreadable": report.unreadable,
                "damaged": [asdict(file) for file in report.damaged],
                "repaired": [asdict(file) for file in report.repaired],
            }
        )
    elif report.damaged:
        data_table(_DAMAGED, report.damaged)
    for file in report.repaired:
        note(f"rebuilt: {file.path} of version {_span(file)}")
    note(f"{counted(len(report.readable), 'version')} can be read{_names(report.unreadable)}")
    if report.is_sound:
        return
    fix = f"odi store check {path} --repair rebuilds what can be rebuilt"
    if repair:
        fix = "put the files back from a copy"
    if report.unreadable and (not report.readable or max(report.unreadable) > report.readable[-1].version):
        last = report.readable[-1].version if report.readable else 0
        fix += f", or go on from what can be read: odi store rewind {path} --to-version {last}"
    note(
        f"odi: {counted(len(report.damaged), 'file')} {'is' if len(report.damaged) == 1 else 'are'} damaged\n  → {fix}"
    )
    raise typer.Exit(FAILED)


def rewind(
    settings: Settings,
    path: PathArgument,
    to_version: Annotated[int, typer.Option("--to-version", metavar="N", min=0, help="The version to go on from.")],
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Withdraw all versions after one; the next commit makes the version after it. This cannot be undone."""
    provider = _open(settings, path)
    _get_store(provider, to_version)
    report = provider.check()
    later = [version for version in [*(c.version for c in report.readable), *report.unreadable] if version > to_version]
    if not later:
        note(f"Nothing to do: no version comes after {to_version}.")
        return
    note(f"This withdraws {counted(len(later), 'version')} of {provider.uri}: {min(later)} to {max(later)}.")
    if dry_run:
        return
    require_consent(yes)
    provider.rewind(to_version)
    note(f"{provider.uri} is at version {to_version}.")


# -- what they share ---------------------------------------------------------------------------------------------------


def _open(settings: Settings, path: str) -> StateStoreProvider:
    from odi_assets.store.find import require_store
    from odi_assets.store.provider import StateStoreProvider

    location = _location(settings, path)
    require_store(location)
    return StateStoreProvider(location.uri, location.storage_options)


def _location(settings: Settings, path: str) -> Location:
    """Where PATH is; the project file is read only if PATH is no folder.

    Raises:
        ConfigError: it is nothing of what it may be.
    """
    if "://" in path:
        raise ConfigError(
            "a URI does not tell how to sign in there",
            fix="add a connection to the project file and write CONNECTION:PATH",
        )
    if Path(path).exists():
        return Location(str(Path(path).absolute()))
    try:
        named = settings.project_file
    except ConfigError:
        # There is no project file here, so PATH can only be a folder.
        named = None
    project = None if named is None else settings.project()
    connection, colon, below = path.partition(":")
    if project is not None and colon and connection in project.config.connections:
        return project.location(connection, below)
    node = None if project is None else project.find_node(path)
    if project is not None and node is not None:
        return project.store(node)
    return Location(str(Path(path).absolute()))


def _get_store(provider: StateStoreProvider, version: int | None) -> StateStore:
    """A version, the latest unless one is named.

    Raises:
        ConfigError: there is no such version.
        StateError: it cannot be read.
    """
    try:
        return provider.get_store(provider.latest_version() if version is None else version, read_only=True)
    except StateError:
        report = provider.check()
        known = [*(commit.version for commit in report.readable), *report.unreadable]
        if version is None or version in known:
            raise
        raise ConfigError(
            f"{provider.uri} has no version {version}",
            fix=f"it has {min(known)} to {max(known)}" if known else "nothing was committed to it yet",
            uri=provider.uri,
            version=version,
        ) from None


def _show_changes(changes: list[StoreChange], limit: int, as_hex: bool, as_json: bool) -> None:
    shown = changes[:limit] if limit else changes
    if as_json:
        data_json([{"version": c.version, "key": _json(c.key), "value": c.value and _json(c.value)} for c in shown])
    elif shown:
        data_table(
            _CHANGES,
            [(c.version, _text(c.key, as_hex), "" if c.value is None else _text(c.value, as_hex)) for c in shown],
        )
    else:
        note("Nothing changed.")
    _tell_left(len(changes) - len(shown), "change")


def _tell_left(number: int, what: str) -> None:
    if number:
        note(f"Not shown: {counted(number, what)}; --limit 0 shows all.")


def _bytes(text: str, as_hex: bool) -> bytes:
    if not as_hex:
        return text.encode("utf-8", errors="surrogateescape")
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise ConfigError(f"{text!r} is not hexadecimal", fix="give two digits for each byte: 00ff") from error


def _text(value: bytes, as_hex: bool) -> str:
    """As text where it is text, else, and with ``as_hex``, hexadecimal."""
    json_value = None if as_hex else _json(value)
    return json_value if isinstance(json_value, str) else value.hex()


def _json(value: bytes) -> Any:
    """Text as it is, other bytes as ``{"hex": …}``."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"hex": value.hex()}


def _span(file: DamagedFile) -> str:
    low, high = file.versions
    return str(low) if low == high else f"{low} to {high}"


def _names(unreadable: dict[int, int]) -> str:
    return f", {', '.join(map(str, unreadable))} cannot" if unreadable else ""
