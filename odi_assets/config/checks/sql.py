"""SQL that Spark cannot run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as FilePath

from odi_assets.config.checks.sql_grammar import find_syntax_error
from odi_assets.config.checks.sql_lexer import find_certain_mistake
from odi_assets.config.diagnostics.locations import Finding
from odi_assets.config.diagnostics.mistakes import Mistake
from odi_assets.config.diagnostics.partial_project import NodeView, Outline
from odi_assets.config.yaml.document import Path


def broken_sql(outline: Outline) -> Iterator[Finding]:
    """Find queries, in the project file or in files of their own, that Spark would not parse."""
    for node in outline.nodes:
        for path, sql in _queries(outline, node):
            if isinstance(sql, Mistake):
                yield Finding(path, sql)
                continue
            mistake = find_certain_mistake(sql) or find_syntax_error(sql)
            if mistake is not None:
                yield Finding(path, mistake)


def _queries(outline: Outline, node: NodeView) -> Iterator[tuple[Path, str | Mistake]]:
    if node.transform is None:
        return
    if node.transform.sql is not None:
        yield (*node.path, "transform", "sql"), node.transform.sql
    file = outline.root / node.transform.sql_file if node.transform.sql_file is not None else None
    if file is not None and file.is_file():
        yield (*node.path, "transform", "sql_file"), _text(file)


def _text(file: FilePath) -> str | Mistake:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = "is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else f"cannot be read: {error.strerror}"
        return Mistake(f"the file {reason}")
