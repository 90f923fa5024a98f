"""The pages of the documentation: their blocks, the commands in them, and what these print."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = {path.name: path for path in DOCUMENTS}
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", flags=re.MULTILINE)
_NAMED = re.compile(r"`([\w.]+)`:\s*$")


@dataclass(frozen=True)
class Block:
    """A block of code of a page.

    Attributes:
        file: the name of the file that it is, where the text before it ends with one: "`state.json`:".
    """

    page: str
    language: str
    text: str
    file: str | None

    @property
    def is_project(self) -> bool:
        """Whether it is a complete project file with nodes."""
        if self.language != "yaml":
            return False
        data = yaml.safe_load(self.text)
        return isinstance(data, dict) and {"project", "connections", "pipelines"} <= set(data)

    @property
    def commands(self) -> list[tuple[str, str]]:
        """The commands of a console, with what each prints."""
        return _COMMAND.findall(self.text) if self.language == "console" else []


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in their order."""
    text = PAGES[page].read_text(encoding="utf-8")
    return [
        Block(page, found[1], found[2], named[1] if (named := _NAMED.search(text[: found.start()])) else None)
        for found in _BLOCK.finditer(text)
    ]


def project_of(page: str) -> str:
    """The text of the one complete project of a page."""
    (block,) = (block for block in blocks(page) if block.is_project)
    return block.text


def pattern(printed: str) -> str:
    """What output has to look like, where a document prints it so: ``…`` stands for anything in a line, or for whole
    lines."""
    lines = ["(?s:.*)" if line == "…" else re.escape(line).replace("…", ".*") for line in printed.rstrip().split("\n")]
    return "\n".join(lines)


def is_as_printed(shown: str, printed: str) -> bool:
    """Whether output is what a document prints."""
    lines = [line.rstrip() for line in shown.splitlines()]
    return re.fullmatch(pattern(printed), "\n".join(lines)) is not None
