"""By what the rows of a node's table are known: the columns that its write compares with rows that are stored.

An upsert finds rows by their keys, an append that reads rows again by keys and cursor, and partitions are replaced by
the value of their column. If such a column is made in another way, or others are compared, a row that is there is not
found and is repeated, or a new one is taken for it. So each commit says what they are made of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from odi_assets.config.compared_columns import compared_columns, keys_compared, made_of, of_read
from odi_assets.config.models import ReadConfig
from odi_assets.config.models.ddl import column_types
from odi_assets.config.sql_columns import EITHER
from odi_assets.delta.table import TableHandle
from odi_assets.errors import IdentityMismatchError
from odi_assets.nodes.commit_facts import CommitFacts
from odi_assets.nodes.node import Node, app_ids
from odi_assets.sources.marks import READ
from odi_assets.sources.reading import Settings, changes, type_of

_COLUMN = re.compile("`[^`]+`")
_APPLIED = "`apply.table`"
_SEVERAL = "several ones"
"""What a column was, or a setting, of which commits that compared no rows by it say different things."""


def known_by(node: Node) -> Mapping[str, Any] | None:
    """By what the node's write knows rows of its table. None: it compares no rows.

    ``keys``; ``columns``: by column that is compared what it is made of, and by column of the source in it how that is
    asked for; ``settings``: by column of the source the settings that its values depend on, and under "" the settings
    that values of any column depend on.

    Raises:
        ConfigError: the SQL file of the transform cannot be read.
    """
    names = compared_columns(node.config)
    return _known_by(node, names) if names else None


def known_after(
    node: Node, target: TableHandle, *, kept: Mapping[str, Any] | None = None, replaced: bool = False
) -> Mapping[str, Any] | None:
    """What a commit says of the rows in the table after it: what :func:`known_by` says, and the same of columns that
    are not compared now, but were, or are keys. An edit may compare them.

    Args:
        target: the table before the commit.
        kept: by source, how much it keeps of the values that rows are known by (see
            ``execution.kept_values``); None: somebody accepts what it keeps.
        replaced: none of its rows stays.
    """
    nothing: Mapping[str, Any] = {"keys": [], "columns": {}, "settings": {}}
    then = {**nothing, **((None if replaced else known_in(target, node)) or {})}
    before = [name.strip("`") for name in then["columns"] if _COLUMN.fullmatch(name) and name != _APPLIED]
    names = {name.casefold(): name for name in (*before, *compared_columns(node.config), *node.config.write.keys)}
    if not names:
        return None
    now, compared = _known_by(node, tuple(names.values())), known_by(node) or nothing
    kept = {} if kept is None else {**(then.get("kept") or {}), **kept}
    return {
        "keys": now["keys"] or then["keys"],
        "columns": {**_united(then["columns"], now["columns"]), **compared["columns"]},
        "settings": {**_united(then["settings"], now["settings"]), **compared["settings"]},
        **({"kept": kept} if kept else {}),
    }


def _united(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """What rows of both kinds are made of; :data:`_SEVERAL` where that differs."""
    united = {**then, **now}
    for name in then.keys() & now.keys():
        if isinstance(now[name], Mapping):
            united[name] = {
                setting: now[name].get(setting) if now[name].get(setting) == then[name].get(setting) else _SEVERAL
                for setting in {**then[name], **now[name]}
            }
        elif then[name] != now[name]:
            united[name] = _SEVERAL
    return united


def _known_by(node: Node, names: tuple[str, ...]) -> dict[str, Any]:
    keys = sorted(key.casefold() for key in keys_compared(node.config))
    if node.config.apply is not None:
        # The log says the keys, whatever the node is called that captures.
        return {"keys": keys, "columns": {_APPLIED: node.config.apply.table}, "settings": {}}
    definitions = made_of(node.config, names, node.project.root)
    columns: dict[str, str] = {f"`{name.casefold()}`": definition.text for name, definition in definitions.items()}
    settings: dict[str, Settings] = {}
    if node.config.read is not None:
        for column in of_read(definitions):
            columns |= _asked_for(node.config.read, column)
            settings[column] = _settings(node, (column,))
        if not all(definition.sources for definition in definitions.values()):
            # Which columns are in it is not known.
            settings[""] = _settings(node, ())
    return {"keys": keys, "columns": columns, "settings": settings}


def _settings(node: Node, columns: tuple[str, ...]) -> Settings:
    """The settings of the node's ``read`` that values of ``columns`` depend on, without their types."""
    settings = next(source for source in node.sources if source.name == READ).unwaited.settings(columns)
    return {name: value for name, value in settings.items() if not name.startswith("read.schema")}


def _asked_for(read: ReadConfig, column: str) -> dict[str, str]:
    """How a column of a source is read, by the name of the setting."""
    asked = read.asked_for(column)
    if asked:
        return asked
    kind = type_of(column, column_types(read.declared)) if read.declared else None
    return {} if kind is None else {f"`read.schema` of `{column}`": kind}


def known_differently(node: Node, target: TableHandle) -> list[str]:
    """How rows that are in the table were known in another way than they are now, each in words."""
    then = known_in(target, node)
    now = None if then is None else known_by(node)
    return [] if then is None or now is None else list(_differences(then, now))


def known_in(target: TableHandle, node: Node) -> Mapping[str, Any] | None:
    """By what the rows of a version of the node's table are known, parts of it too; None if the log does not say."""
    facts = CommitFacts.last_in(target, app_ids(node.key)) if target.exists else None
    return None if facts is None else facts.known_by


def _differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    before, after = then.get("keys"), now["keys"]
    if before and after and before != after:
        yield f"`write.keys` were {_listed(before)} and are {_listed(after)} now"
    columns = then.get("columns") or {}
    changed = [name for name, text in now["columns"].items() if name in columns and columns[name] != text]
    if changed and not _are_reordered(columns, now["columns"]):
        for name in changed:
            text = now["columns"][name]
            yield f"{name} was {columns[name]} and is {text} now"
    settings = then.get("settings") or {}
    both = (name for name in now["settings"] if name in settings)
    change_texts = (
        change for name in both for change in changes({"rows": settings[name]}, {"rows": now["settings"][name]})
    )
    yield from dict.fromkeys(change_texts)


def _are_reordered(then: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether columns are made of the same queries of a UNION in another order: all of them in the same one."""
    both = [name for name in now if name in then]
    before, after = ([columns[name].split(EITHER) for name in both] for columns in (then, now))
    count = max(map(len, before))
    if any(len(texts) not in (1, count) for texts in (*before, *after)):
        return False
    before, after = ([texts * (count // len(texts)) for texts in side] for side in (before, after))
    return sorted(zip(*before, strict=True)) == sorted(zip(*after, strict=True))


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def require_known_rows(node: Node, target: TableHandle, *, bounded: bool = False) -> None:
    """Raises IdentityMismatchError if the node would not find rows of its table that earlier commits wrote.

    Args:
        bounded: only a part of the table is written. What replaces it as a whole finds no rows of it.
    """
    is_replaced = node.config.write.mode.traits.increment == "table"
    differences = known_differently(node, target) if bounded or not is_replaced else []
    if differences and is_replaced:
        raise IdentityMismatchError(
            f"{node}: {'; '.join(differences)}, and by this a range knows the rows that it replaces",
            fix=f"put the definition back; or load all rows as they are known now first: odi run {node.command}",
            node=str(node),
        )
    if differences:
        raise IdentityMismatchError(
            f"{node}: {'; '.join(differences)}, and by this its write knows rows that are in the table; they would be "
            "repeated, or new rows be taken for them",
            fix=f"if rows are known as before, go on with them: odi state adopt {node}; or put the definition back; "
            f"or rebuild the table from its sources: odi run {node.command} --full-refresh",
            node=str(node),
        )
