"""The node and the keys that a question is about, as arguments and options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from odi_assets.config.graph import NodeKey
    from odi_assets.nodes.project import Project

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="PIPELINE.NODE, or NODE if one pipeline has it.")]
KeysOption = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        "-k",
        metavar="KEY",
        help="The key, or COLUMN=VALUE; of a key of several columns A=1,B=2. May be given again.",
    ),
]
KeysFromOption = Annotated[
    str | None,
    typer.Option(
        "--keys-from",
        metavar="FILE|TABLE",
        help="A file with a key in each line (- for standard input), or the key column of a Delta table: a folder, "
        "CONNECTION:PATH or PIPELINE.NODE.",
    ),
]


def node_named(project: Project, name: str) -> NodeKey:
    """The node that ``name`` means.

    Raises:
        ConfigError: there is none, or several pipelines have one.
    """
    from odi_assets.errors import ConfigError

    found = project.pipeline_nodes(None, (name,))
    if len(found) > 1:
        raise ConfigError(f"several pipelines have a node `{name}`", fix=f"name one of {', '.join(map(str, found))}")
    return found[0]
