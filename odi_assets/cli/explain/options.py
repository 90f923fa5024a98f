"""The keys that a question is about, as options."""

from __future__ import annotations

from typing import Annotated

import typer

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
        "CONNECTION:PATH or a node.",
    ),
]
