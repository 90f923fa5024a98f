"""Short forms, and Odibi's names for keys, rewritten to the full form before validation.

What has no full form is returned as it is, so that validation says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odi_assets.config.diagnostics.mistakes import Mistake, about, mistakes


def mode_only(value: Any) -> Any:
    """Return ``{mode: version}`` for ``version``."""
    return {"mode": value} if isinstance(value, str) else value


def node_only(value: Any) -> Any:
    """Return ``{node: raw}`` for ``raw``."""
    return {"node": value} if isinstance(value, str) else value


def view_name(item: Any, position: int) -> str:
    """Return the view name of an item in a list of inputs: the name of its node; ``[2]`` for one that names no node."""
    reference = item.get("node") if isinstance(item, Mapping) else item
    return reference.removeprefix("$").rpartition(".")[2] if isinstance(reference, str) else f"[{position}]"


def named_inputs(value: Any) -> Any:
    """Return inputs by view name for a list of them.

    Raises:
        PydanticCustomError: two items would have one view name.
    """
    if not isinstance(value, list | tuple):
        return value
    named: dict[str, Any] = {}
    twice: list[Mistake] = []
    for position, item in enumerate(value):
        view = view_name(item, position)
        if view in named:
            text = "gives two inputs one name: name them, as in `inputs: {a: one.node, b: other.node}`"
            twice.append(about(view, text, at=(position,)))
        named[view] = item
    if twice:
        raise mistakes(twice)
    return named


def fold_keys(write: Any) -> Any:
    """Return a write section with Odibi's ``merge_keys`` or ``options: {keys: …}`` as ``keys``.

    Raises:
        PydanticCustomError: the keys are given in two ways, or ``options`` holds more than them.
    """
    if not isinstance(write, Mapping):
        return write
    folded = dict(write)
    given: list[tuple[str, ...]] = []
    options = folded.get("options")
    if isinstance(options, Mapping) and "keys" in options:
        others = [name for name in options if name != "keys"]
        if others:
            text = "unknown key: only `keys` is taken here"
            raise mistakes(Mistake(text, at=("options", name), where="key") for name in others)
        given.append(("options", "keys"))
        folded["keys"] = folded.pop("options")["keys"]
    if "merge_keys" in folded:
        given.append(("merge_keys",))
        folded["keys"] = folded.pop("merge_keys")
    if "keys" in write:
        given.append(("keys",))
    if len(given) > 1:
        raise mistakes([Mistake("gives the keys a second time: keep `keys`", at=given[0], where="key")])
    return folded
