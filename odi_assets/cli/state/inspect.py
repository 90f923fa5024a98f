"""``odi state list | get | set``, and what the commands of ``odi state`` share."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odi_assets.cli.terminal.options import JsonOption, Settings
from odi_assets.cli.terminal.output import Column, data, data_json, data_table, moment, note
from odi_assets.cli.terminal.typed_values import from_text
from odi_assets.errors import ConfigError, OdiError, StateError
from odi_assets.sources.marks import READ, hwm_text
from odi_assets.state.values import encode, to_json
from odi_assets.state.values.typed_text import to_text

if TYPE_CHECKING:
    from odi_assets.nodes.node import Node
    from odi_assets.nodes.project import Project
    from odi_assets.state.backend import StateBackend
    from odi_assets.state.records import HwmEntry

_COLUMNS = (
    Column("key", lambda entry: entry.key),
    Column("HWM", lambda entry: shown_value(entry) or "null", wrap=True),
    Column("type", lambda entry: type_name(entry)),
    Column("revision", lambda entry: str(entry.revision), "right", spare=True),
    Column("updated (UTC)", lambda entry: moment(entry.updated_at)),
    Column("environment", lambda entry: entry.environment, optional=True),
)

KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="PIPELINE.NODE, or the node's `state_key`.")]


def list_(
    settings: Settings,
    pipeline: Annotated[
        str | None,
        typer.Option("--pipeline", "-p", metavar="NAME", help="Only this pipeline; and its nodes that have none yet."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the high-water mark of each key."""
    project = settings.project()
    entries = project.open_state().list_hwms()
    without: list[str] = []
    if pipeline is not None:
        keys = _keys_of(project, pipeline)
        entries = [entry for entry in entries if entry.key in keys]
        without = [key for key in keys if key not in {entry.key for entry in entries}]
    if as_json:
        data_json([*(entry_json(entry) for entry in entries), *map(_missing_json, without)])
        return
    if entries:
        data_table(_COLUMNS, entries)
    elif pipeline is None:
        note("No high-water marks yet: nothing has been loaded.")
    if without:
        note(f"Without one yet: {', '.join(without)}")


def _keys_of(project: Project, pipeline: str) -> list[str]:
    """The keys of the nodes of a pipeline that keep an HWM."""
    from odi_assets.config.graph import state_key

    nodes = ((key, project.graph.node(key)) for key in project.pipeline_nodes(pipeline))
    return [state_key(key, node) for key, node in nodes if any(map(_keeps_hwm, node.increments.values()))]


def _keeps_hwm(increment: Any) -> bool:
    return increment is not None and increment.mode != "rolling_window"


def get(settings: Settings, key: KeyArgument) -> None:
    """Print a high-water mark as JSON; `odi state set` reads back what this prints, with its type."""
    project = settings.project()
    data(to_text(entry_of(key, project, project.open_state()).value))


def set_(
    settings: Settings,
    key: KeyArgument,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="JSON, or plain text with --type.")],
    kind: Annotated[
        str | None,
        typer.Option("--type", metavar="TYPE", help="str, int, float, decimal, bool, date, datetime, bytes, uuid …"),
    ] = None,
) -> None:
    """Set a high-water mark, back or forward; the next run reads on from there."""
    project = settings.project()
    state = project.open_state()
    before = state.get_entry(key)
    typed_value = from_text(value, kind, before.value if before else None)
    require_inputs(project, key, typed_value)
    entry = state.reset_hwm(key, typed_value, origin=origin_of(project, key))
    # Another writer may have been in between.
    former = (kept for kept in state.history(key) if kept.revision < entry.revision)
    replaced = max(former, key=lambda kept: kept.revision, default=before)
    text = "not set" if replaced is None or replaced.deleted else to_text(replaced.value)
    note(f"{key}: {text} → {to_text(entry.value)}")
    warn_if_unused(project, key)


def require_inputs(project: Project, key: str, value: Any) -> None:
    """Make sure that a value says which inputs it is of, where the node of ``key`` keeps a mark by input.

    Raises:
        ConfigError: it does not, or names another input.
    """
    node = _node_of(project, key)
    names = node.following if node is not None else ()
    if value is None or not names or names == (READ,):
        return
    inputs = ", ".join(names)
    if not isinstance(value, dict):
        raise ConfigError(
            f"{key} has a mark for each input that it follows ({inputs}), and {to_text(value)} does not say which "
            "input it is of",
            fix=f"odi state set {key} '{to_text(dict.fromkeys(names, value))}'",
        )
    unknown = next((name for name in value if name not in names), None)
    if unknown is not None:
        raise ConfigError(f"{key} follows no input `{unknown}`", fix=f"name the inputs that it follows: {inputs}")


def warn_if_unused(project: Project, key: str) -> None:
    """Say on stderr if no node of the project keeps its HWM under ``key``."""
    known = node_keys(project)
    if key not in known:
        note(f"warning: no node of this project keeps its high-water mark under {key!r}{meant(key, known)}")


def entry_json(entry: HwmEntry) -> dict[str, Any]:
    """An entry as ``--json`` gives it."""
    value, kind = to_json(entry.value)
    return {
        "key": entry.key,
        "value": value,
        "value_type": entry.value_type or kind,
        "environment": entry.environment,
        "updated_at": entry.updated_at.isoformat(),
        "revision": entry.revision,
        "target_commit": entry.target_commit,
        "run_id": entry.run_id,
    }


def _missing_json(key: str) -> dict[str, Any]:
    """A key without an HWM, with the same fields."""
    names = ("value_type", "environment", "updated_at", "revision", "target_commit", "run_id")
    return {"key": key, "value": None, **dict.fromkeys(names)}


def shown_value(entry: HwmEntry) -> str | None:
    """The entry's HWM in a few words."""
    return hwm_text(entry.value)


def type_name(entry: HwmEntry) -> str:
    """The entry's type in a word."""
    kind = entry.value_type or encode(entry.value).type
    # Types of parts are for machines; --json has them.
    return "dict" if kind.startswith('{"dict"') else kind.partition("{")[0] or "list"


def entry_of(key: str, project: Project, state: StateBackend, *, deleted: bool = False) -> HwmEntry:
    """The HWM of a key; with ``deleted``, also the last revision of one that was deleted.

    Raises:
        StateError: the key is a node's that has none yet.
        ConfigError: there is no such key.
    """
    entry = state.get_entry(key, deleted=deleted)
    if entry is not None:
        return entry
    known = node_keys(project)
    if key in known:
        raise StateError(f"{key} has no high-water mark yet", fix="run its node first, or set one", key=key)
    names = [*known, *(entry.key for entry in state.list_hwms())]
    raise ConfigError(f"there is no state key {key!r}{meant(key, names)}", fix="`odi state list` shows them", key=key)


def origin_of(project: Project, key: str) -> str | None:
    """What an HWM set now under ``key`` is of; None if no node keeps its HWM there, or its sources do not tell."""
    from odi_assets.nodes.planning.identity import origin_now

    node = _node_of(project, key)
    try:
        return None if node is None else origin_now(node).to_json()
    except OdiError as error:
        note(f"warning: what {key} measures is not stored with it: {error.message}")
        return None


def _node_of(project: Project, key: str) -> Node | None:
    """The node that keeps its HWM under ``key``."""
    from odi_assets.nodes.node import Node

    nodes = (Node.of(project, name) for name in project.graph.nodes)
    return next((node for node in nodes if node.state_key == key), None)


def node_keys(project: Project) -> list[str]:
    """The keys that the project's nodes keep their HWMs under."""
    from odi_assets.config.graph import state_key

    return [state_key(key, node) for key, node in project.graph.nodes.items()]


def meant(key: str, known: list[str]) -> str:
    close = get_close_matches(key, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
