"""Which tool wrote a document, and who reads it. A tool is recognised by what only its documents have.

A tool of this package is a row of :data:`CURSOR_TOOLS` and a folder with one :class:`ToolSpec`. Another package
registers its own as an entry point of the group ``odi_assets.cursor_tools``, under the tool's name in small letters.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from odi_assets.documents.findings import Findings
from odi_assets.documents.model import CursorDocument, CursorStream, SharedPosition
from odi_assets.errors import ConfigError
from odi_assets.util.exact_json import JsonPath
from odi_assets.util.extensions import ExtensionPoint

CURSOR_TOOLS = ExtensionPoint(
    group="odi_assets.cursor_tools",
    what="tool of cursor documents",
    built_in={
        "olake": "odi_assets.documents.olake.spec:OLAKE",
        "airbyte": "odi_assets.documents.airbyte.spec:AIRBYTE",
        "singer": "odi_assets.documents.singer.spec:SINGER",
        "dlt": "odi_assets.documents.dlt.spec:DLT",
    },
    wanted="`ToolSpec`",
)


class DocumentWriter(Protocol):
    """How the documents of a tool are changed and made; a module with these functions is one."""

    def text_of(self, streams: Iterable[CursorStream], shared: SharedPosition | None = None) -> str:
        """A new document of these streams, as JSON text."""

    def state_places(self, document: CursorDocument) -> Mapping[str, list[JsonPath]]:
        """Where the state of each stream is, by its id."""

    def settable(self, document: CursorDocument, stream_id: str) -> Mapping[str, list[JsonPath]]:
        """Where the values of a stream are that can be set, by name."""

    def removals(self, document: CursorDocument, stream_id: str) -> list[JsonPath]:
        """The members to take out, so that the tool reads the stream from its start."""

    def encoded(self, value: Any, before: Any) -> Any:
        """A value as the document writes it in the place of ``before``."""


def _whole(document: CursorDocument) -> Any:
    return document.content


def _own_names(stream: CursorStream) -> tuple[str, str]:
    return stream.namespace, stream.name


def _own_id(stream: CursorStream) -> str:
    return stream.id


@dataclass(frozen=True)
class ToolSpec:
    """A tool whose documents are known: what an entry point of the group ``odi_assets.cursor_tools`` names.

    Attributes:
        name: as people write it; in small letters, it is the name of the entry point.
        form_of: the form of a JSON value if it is a document of this tool; None if it is not one.
        read: the document in such a value, or None after it has added to the findings what is wrong.
        read_lines: the same for a list of values that stood one after another; None: the tool writes no such files.
        writer: changes and makes documents; None: they are read alone.
        canonical: the content of a document with its sets in one order.
        reads_above: whether the tool goes on above a cursor's value; otherwise it reads the rows at it once more.
        most_columns: how many cursor columns of a stream it follows.
        takes_paths: whether a cursor may be a path into nested values.
        positions: the types of log positions that its documents have a place for.
        names_of: the namespace and the name of a stream of its documents.
        id_of: the id that a stream would have in a document of it.

    Example:
        >>> spec = ToolSpec("Acme", lambda content: None, lambda content, findings: None)
        >>> spec.key
        'acme'
    """

    name: str
    form_of: Callable[[Any], str | None]
    read: Callable[[Any, Findings], CursorDocument | None]
    read_lines: Callable[[Any, Findings], CursorDocument | None] | None = None
    writer: DocumentWriter | None = None
    canonical: Callable[[CursorDocument], Any] = _whole
    reads_above: bool = False
    most_columns: int = 1
    takes_paths: bool = False
    positions: tuple[type[Any], ...] = ()
    names_of: Callable[[CursorStream], tuple[str, str]] = _own_names
    id_of: Callable[[CursorStream], str] = _own_id

    @property
    def key(self) -> str:
        """The name on the command line, and of the entry point."""
        return self.name.lower()


def spec_of(tool: str) -> ToolSpec:
    """The tool of that name, in small letters or not.

    Raises:
        ConfigError: no tool has this name, or its package is broken.
    """
    return _spec(tool.lower(), tuple(sys.path))


@lru_cache(maxsize=64)
def _spec(key: str, path: tuple[str, ...]) -> ToolSpec:
    """The tool of that name; ``path`` is where packages are looked for."""
    del path
    tool: ToolSpec = CURSOR_TOOLS.load(key, lambda spec: isinstance(spec, ToolSpec))
    if tool.key != key:
        raise ConfigError(
            f"the tool of cursor documents `{key}` calls itself {tool.name}: its entry point in "
            f"`{CURSOR_TOOLS.group}` has another name",
            fix=f"its package is wrong: let it register the tool as `{tool.key}`",
            name=key,
        )
    return tool


def specs() -> list[ToolSpec]:
    """All tools, of other packages too.

    Raises:
        ConfigError: a package is broken, or a name is taken twice.
    """
    CURSOR_TOOLS.require_unique()
    return [spec_of(name) for name in CURSOR_TOOLS.names()]


def recognise(content: Any, *, many: bool = False) -> str | None:
    """The tool whose document a JSON value is; None if it is none's, or may be more than one's.

    Args:
        many: ``content`` is a list of messages that stood one after another.
    """
    tools = [spec for spec in specs() if spec.read_lines is not None or not many]
    names = [spec.name for spec in tools if spec.form_of(content) is not None]
    return names[0] if len(names) == 1 else None
