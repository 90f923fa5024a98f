"""The picture of the rooms in docs/how-it-works.md, drawn from the import contracts of ``pyproject.toml``.

``python -m odi_assets_tests.rooms`` puts it into the page.
"""

from __future__ import annotations

import re
import tomllib
from itertools import combinations

from odi_assets_tests.pages import PAGES, ROOT

PAGE = PAGES["how-it-works.md"]
_PICTURE = re.compile(r"^```mermaid\n.*?^```\n", flags=re.DOTALL | re.MULTILINE)
_PACKAGE = "odi_assets"


def picture() -> str:
    """A Mermaid diagram. An arrow leads to each room that a room may import, unless other arrows lead there too."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = (_rooms(one["layers"]) for one in contracts if one.get("containers") == [_PACKAGE])
    apart = [one for one in contracts if one["type"] == "forbidden"]
    (wings,) = ({*_names(one["forbidden_modules"])} for one in apart if one["name"].startswith("The core"))
    forbidden = {
        (above, below)
        for one in apart
        for above in _names(one["source_modules"])
        for below in _names(one["forbidden_modules"])
    }
    allowed = {
        (above, below)
        for upper, lower in combinations(layers, 2)
        for above in upper
        for below in lower
        if (above, below) not in forbidden
    }
    rooms = [room for layer in layers for room in layer]
    arrows = [
        f"    {above} --> {below}"
        for above in rooms
        for below in rooms
        if (above, below) in allowed
        and not any((above, between) in allowed and (between, below) in allowed for between in rooms)
    ]
    inside = [f"        {room}" for room in rooms if room in wings]
    return "\n".join(["```mermaid", "flowchart TB", "    subgraph wings", *inside, "    end", *arrows, "```", ""])


def put_into_page() -> None:
    """Put the picture in the place of the one that the page has."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_PICTURE.sub(lambda _: picture(), text), encoding="utf-8")


def _rooms(layers: list[str]) -> list[list[str]]:
    return [re.split(r"\s*[|:]\s*", layer) for layer in layers]


def _names(modules: list[str]) -> list[str]:
    """The rooms among modules: rooms of rooms are left out."""
    return [module.removeprefix(f"{_PACKAGE}.") for module in modules if module.count(".") == 1]


if __name__ == "__main__":
    put_into_page()
