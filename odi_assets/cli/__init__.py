"""``odi``: the project from the shell. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from odi_assets.cli.terminal.exit_codes import DONE, reader_gone, report
from odi_assets.cli.terminal.output import ReaderGone, open_missing_streams
from odi_assets.util.debugging import DEBUG_VARIABLE

_OBJECTS_BETWEEN_PASSES = 50_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``odi`` with ``arguments`` (by default, the arguments of the process) and return its exit code.
    0 done, 1 failed, 2 bad usage or bad input, 130 interrupted, 141 the reader of stdout went away. Errors are printed
    to stderr.
    """
    open_missing_streams()
    from odi_assets.cli.app import group

    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    debug = {name: os.environ[name] for name in (DEBUG_VARIABLE,) if name in os.environ}
    try:
        ended = group().main(arguments, prog_name="odi", standalone_mode=False)
        sys.stdout.flush()
        return ended if isinstance(ended, int) else DONE
    except ReaderGone:
        return reader_gone()
    except BaseException as error:  # noqa: BLE001  nothing lies beyond; delta-rs panics are no Exception
        return report(error)
    finally:
        # --debug counts for this command, not for the next one of the same process.
        os.environ.pop(DEBUG_VARIABLE, None)
        os.environ |= debug


def command() -> int:
    """:func:`main` as a process of its own.

    Python's collector walks all objects again and again while modules are loaded, and once more at the end: half of
    the CPU of a short run. Nearly all of these objects stay. So the collector runs less often, and not at the end.
    """
    gc.set_threshold(_OBJECTS_BETWEEN_PASSES)
    code = main()
    gc.disable()
    gc.freeze()
    return code
