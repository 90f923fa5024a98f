"""Arguments and options that several commands of ``odi checkpoint`` take."""

from __future__ import annotations

from typing import Annotated

import typer

PathArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="A query's checkpointLocation: a folder, a URI, CONNECTION:PATH; or a stream node: NODE or PIPELINE.NODE.",
    ),
]
OperatorOption = Annotated[
    int, typer.Option("--operator", "-o", metavar="N", min=0, help="Which stateful operator of the query.")
]
BatchOption = Annotated[
    int | None, typer.Option("--batch", "-b", metavar="N", min=0, help="After which batch; the last one unless given.")
]
StoreOption = Annotated[str | None, typer.Option("--store", "-s", metavar="NAME", help="A store of the operator.")]
SideOption = Annotated[str | None, typer.Option("--side", metavar="left|right", help="A side of a join.")]
VariableOption = Annotated[
    str | None, typer.Option("--variable", metavar="NAME", help="A state variable of transformWithState.")
]
WhereOption = Annotated[
    str | None,
    typer.Option("--where", "-w", metavar="SQL", help="Only rows that meet this condition: \"key.field0 = 'ord-7'\"."),
]
LimitOption = Annotated[int, typer.Option("--limit", metavar="N", min=0, help="At most this many rows; 0: all.")]
