"""What became of the checks of a node: for messages, for the run history, for the shell and for Dagster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odi_assets.config.models.checks import Check
from odi_assets.errors import ChecksFailedError
from odi_assets.nodes.result import CHECKS
from odi_assets.util.words import counted


@dataclass(frozen=True)
class CheckOutcome:
    """One check, evaluated.

    Attributes:
        text: what was found, in words.
        rows_failed: rows that fail; None for a check of the rows as a whole.
        rows: rows that were looked at.
        samples: up to three rows that fail, as text.
    """

    check: Check
    passed: bool
    text: str
    rows: int
    rows_failed: int | None = None
    samples: tuple[str, ...] = ()

    @property
    def blocks(self) -> bool:
        """Whether an increment with this outcome is not committed as it is."""
        return not self.passed and self.check.blocks

    @property
    def line(self) -> str:
        """The outcome in one line: the name of the check, what was found, and rows that fail."""
        shown = f"; as in {' · '.join(self.samples)}" if self.samples else ""
        return f"`{self.check.name}`: {self.text}{shown}"

    def to_json(self) -> dict[str, Any]:
        """The outcome as JSON-ready values."""
        return {
            "check": self.check.name,
            "kind": self.check.kind,
            "columns": list(self.check.columns),
            "severity": self.check.config.severity,
            "passed": self.passed,
            "rows_failed": self.rows_failed,
            "rows": self.rows,
            "text": self.text,
            "samples": list(self.samples),
        }


def stopped(node: str, what: str, outcomes: Sequence[CheckOutcome], *, quarantine: str | None) -> ChecksFailedError:
    """The error of rows that fail checks.

    Args:
        what: the rows, in words.
        quarantine: the node's; None if it has none.
    """
    blocking = [outcome for outcome in outcomes if outcome.blocks]
    lines = "\n".join(f"  {outcome.line}" for outcome in blocking)
    by_row = all(outcome.check.by_row for outcome in blocking)
    rows = "correct the rows where they come from" if by_row else "correct or complete the rows where they come from"
    fix = f"{rows}, or the check in the project file, and run the node again"
    if quarantine is None and by_row:
        fix += "; with `quarantine: TABLE`, the other rows are written and these go there"
    elif quarantine is not None:
        fix += "; such a check is of all rows together: it sends none to the quarantine"
    return ChecksFailedError(
        f"{node}: {what} fails {counted(len(blocking), 'check')}, and nothing was committed:\n{lines}",
        fix=f"{fix}; with `severity: warn`, the check says so and stops nothing",
        node=node,
        checks=[outcome.to_json() for outcome in outcomes],
    )


def failed_lines(metrics: Mapping[str, Any], *, stopping: bool = True) -> list[str]:
    """A line for each check that failed in a run, by the run's metrics.

    Args:
        stopping: also those that stopped the increment, or sent rows to the quarantine.
    """
    lines = []
    for outcome in metrics.get(CHECKS) or ():
        if not outcome["passed"] and (stopping or outcome["severity"] == "warn"):
            shown = f"; as in {' · '.join(outcome['samples'])}" if outcome["samples"] else ""
            lines.append(f"check `{outcome['check']}` ({outcome['severity']}): {outcome['text']}{shown}")
    return lines
