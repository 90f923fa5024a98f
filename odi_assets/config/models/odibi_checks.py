"""Odibi's ``validation`` and ``contracts`` as checks of ours; what says something else here is refused by its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from odi_assets.config.diagnostics.mistakes import Mistake, Path, about, closest, mistakes, one_of

_KEYS: Mapping[str, tuple[str, ...]] = {
    "not_null": ("columns",),
    "unique": ("columns",),
    "accepted_values": ("column", "values"),
    "range": ("column", "min", "max"),
    "row_count": ("min", "max"),
    "custom_sql": ("condition",),
    "regex_match": ("column", "pattern"),
    "freshness": ("column", "max_age"),
}
"""By type of a test of Odibi, its keys that carry over."""
_HARMLESS: Mapping[str, Any] = {"description": None, "threshold": 0}
_REFUSED = ("schema", "distribution", "volume_drop")
_VALIDATION = {"mode", "on_fail", "tests", "quarantine", "gate", "fail_fast", "cache_df"}
_QUARANTINE = {"connection", "path", "retention_days"}
_MODES = {"fail": None, "warn": "warn", "log": "warn"}


def with_checks(node: Mapping[str, Any]) -> dict[str, Any]:
    """A node in whose ``checks`` and ``quarantine`` are what ``validation`` and ``contracts`` say.

    Raises:
        PydanticCustomError: one of the two says something that has no counterpart here.
    """
    found_mistakes: list[Mistake] = []
    new_node = dict(node)
    checks = new_node.get("checks")
    checks = list(checks) if isinstance(checks, list | tuple) else checks
    contracts, validation = new_node.pop("contracts", None), new_node.pop("validation", None)
    added: list[dict[str, Any]] = []
    if contracts:
        if new_node.get("transform") is not None:
            text = "check what is read, before the transform, and `checks` check what is written: give the checks to "
            found_mistakes.append(Mistake(f"{text}the node that reads", at=("contracts",), where="key"))
        added += _tests(contracts, ("contracts",), None, found_mistakes)
    if validation:
        added += _validation(validation, new_node, found_mistakes)
    if found_mistakes:
        raise mistakes(found_mistakes)
    if checks is not None and not isinstance(checks, list):
        return new_node
    return {**new_node, "checks": [*(checks or []), *added]}


def _validation(validation: Any, new_node: dict[str, Any], found_mistakes: list[Mistake]) -> list[dict[str, Any]]:
    if not isinstance(validation, Mapping):
        found_mistakes.append(Mistake("is a mapping with `tests`", at=("validation",)))
        return []
    at: Path = ("validation",)
    found_mistakes += [
        Mistake("unknown key", at=(*at, key), where="key") for key in validation if key not in _VALIDATION
    ]
    mode = validation.get("mode") or "fail"
    if mode not in _MODES:
        found_mistakes.append(about(mode, f"is no mode: there are {one_of(_MODES)}", at=(*at, "mode")))
    if validation.get("gate"):
        text = "has no counterpart: say with checks when an increment stops, as `row_count` and `sql` do"
        found_mistakes.append(Mistake(text, at=(*at, "gate"), where="key"))
    if validation.get("on_fail") not in (None, "alert"):
        found_mistakes.append(
            Mistake("has no counterpart: give the checks a `severity`", at=(*at, "on_fail"), where="key")
        )
    quarantine = validation.get("quarantine")
    if quarantine:
        _quarantine(quarantine, new_node, found_mistakes)
    return list(
        _tests(validation.get("tests") or [], (*at, "tests"), _MODES.get(str(mode)), found_mistakes, bool(quarantine))
    )


def _quarantine(quarantine: Any, new_node: dict[str, Any], found_mistakes: list[Mistake]) -> None:
    at: Path = ("validation", "quarantine")
    if not isinstance(quarantine, Mapping) or not quarantine.get("path"):
        found_mistakes.append(Mistake("names no table: give it a `path`", at=at))
        return
    write = new_node.get("write")
    connection = write.get("connection") if isinstance(write, Mapping) else None
    for key in quarantine:
        if key not in _QUARANTINE:
            text = "has no counterpart: the table has the columns of the node and `failed_checks`"
            found_mistakes.append(Mistake(text, at=(*at, key), where="key"))
    if quarantine.get("connection") not in (None, connection):
        text = "is another connection than the connection of `write`: the table is beside the node's"
        found_mistakes.append(Mistake(text, at=(*at, "connection")))
    if new_node.get("quarantine") is not None:
        found_mistakes.append(
            Mistake("gives the quarantine a second time: keep `quarantine` of the node", at=at, where="key")
        )
    new_node["quarantine"] = quarantine["path"]


def _tests(
    tests: Any, at: Path, severity: str | None, found_mistakes: list[Mistake], quarantines: bool = False
) -> Iterator[dict[str, Any]]:
    if not isinstance(tests, list | tuple):
        found_mistakes.append(Mistake("is a list of tests", at=at))
        return
    for index, test in enumerate(tests):
        kind = str(test.get("type")) if isinstance(test, Mapping) else ""
        path = (*at, index)
        if not isinstance(test, Mapping) or kind not in _KEYS:
            found_mistakes.append(_unknown(kind, path))
            continue
        on_fail = test.get("on_fail")
        wanted = severity or ("warn" if on_fail == "warn" else "error")
        if on_fail not in (None, "fail", "warn", "quarantine"):
            found_mistakes.append(about(on_fail, "is none of `fail`, `warn` or `quarantine`", at=(*path, "on_fail")))
        elif on_fail == "quarantine" and not quarantines:
            found_mistakes.append(Mistake("needs `quarantine: {path: …}` in `validation`", at=(*path, "on_fail")))
        elif on_fail == "fail" and quarantines and severity is None:
            text = "has no counterpart beside `quarantine`: rows that fail a check go there, and the others are written"
            found_mistakes.append(Mistake(text, at=(*path, "on_fail")))
        taken = {"type", "name", "on_fail", *_KEYS[kind]}
        found_mistakes += [
            Mistake(f"has no counterpart in a test of type `{kind}`", at=(*path, key), where="key")
            for key, value in test.items()
            if key not in taken and not (key in _HARMLESS and value in (None, _HARMLESS[key]))
        ]
        check = _check(kind, test)
        name = test.get("name")
        yield {**check, "severity": wanted, **({"name": name} if name else {})}


def _unknown(kind: str, at: Path) -> Mistake:
    if kind in _REFUSED:
        text = f"has no counterpart: there are {one_of(_KEYS)}; `write.schema` says what happens to other columns"
        return about(kind, text, at=(*at, "type"))
    return about(
        kind, f"is no type of a test: there are {one_of(_KEYS)}", at=(*at, "type"), suggestion=closest(kind, _KEYS)
    )


def _check(kind: str, test: Mapping[str, Any]) -> dict[str, Any]:
    if kind in ("not_null", "unique"):
        return {kind: test.get("columns")}
    if kind == "custom_sql":
        return {"expression": test.get("condition")}
    if kind == "regex_match":
        column, pattern = str(test.get("column")), str(test.get("pattern"))
        quoted = pattern.replace("\\", "\\\\").replace("'", "\\'")
        return {"expression": f"`{column}` RLIKE '{quoted}'"}
    if kind == "freshness":
        return {kind: {"column": test.get("column"), "within": test.get("max_age")}}
    return {kind: {key: test[key] for key in _KEYS[kind] if test.get(key) is not None}}
