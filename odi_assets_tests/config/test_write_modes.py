"""The table of write modes: the documentation says of each mode what its traits say."""

from __future__ import annotations

from pathlib import Path

from odi_assets.config.write_modes import WriteMode

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "project-file.md"
COMPUTED = {"rows": "the new rows", "partitions": "the partitions of the new rows", "table": "the whole table"}
CONFLICT = {"nothing": "nothing", "partitions": "the same partitions", "table": "the table"}


def documented() -> list[list[str]]:
    """The cells of each row of the table of modes."""
    lines = DOCUMENT.read_text(encoding="utf-8").split("| `mode` |")[1].splitlines()[2:]
    rows = lines[: lines.index("")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_documentation_tells_the_traits_of_every_write_mode_and_of_no_other() -> None:
    traits = {mode: mode.traits for mode in WriteMode}
    assert documented() == [
        [
            f"`{mode}`",
            trait.description,
            "`keys`" if trait.needs_keys else "partition columns" if trait.partitioned else "",
            COMPUTED[trait.increment],
            "are taken" if trait.takes_rows_again else "are looked up by `keys`",
            CONFLICT[trait.computed_from],
        ]
        for mode, trait in traits.items()
    ]
