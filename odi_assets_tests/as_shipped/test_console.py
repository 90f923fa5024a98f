"""Every command that a page shows is typed, in the order of the page, and prints what the page shows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from odi_assets_tests.as_shipped.installed import Installed
from odi_assets_tests.as_shipped.shop_databases import of_postgres, server_of
from odi_assets_tests.jdbc import needs_drivers
from odi_assets_tests.pages import PAGES, ROOT, blocks, is_as_printed, project_of
from odi_assets_tests.sources.sql.servers import Server

NOT_TYPED = {
    "pip install 'odi_assets[ui,java]'": "it fetches a gigabyte; installed.py makes what it makes",
    "pip install 'odi_assets[ui]'": "it fetches the webserver; installed.py makes what it makes",
    "odi dev": "it runs until Ctrl-C: test_dev.py starts it",
    "make run": "it is for a clone, and makes an environment: odi_assets_tests/sample runs its commands",
    "make dev": "it is `odi dev` in a clone",
}
"""Commands that pages show and this suite does not type, with the reason."""

_PYTHON = """
import json, os, sys
answers, names = os.fdopen(os.dup(1), "w"), {"__name__": "page"}
os.dup2(2, 1)
for line in sys.stdin:
    exec(compile(json.loads(line), "page", "exec"), names)
    print("done", file=answers, flush=True)
"""
"""What runs the Python of a page, a block for each line of JSON, and all of them with the same names."""


class Session:
    """A shell in an empty folder, in which a page is followed.

    Attributes:
        folder: where it was opened.
        variables: of the environment, beside those that every process has.
    """

    def __init__(self, installed: Installed, folder: Path) -> None:
        self.installed, self.folder, self.here = installed, folder, folder
        self.variables: dict[str, str] = {}
        self._python: subprocess.Popen[str] | None = None

    def type(self, command: str, printed: str) -> None:
        """Type a command of a page, which ends well and prints what it shows, if it shows something."""
        if command.startswith("cd "):
            self.here /= command.removeprefix("cd ")
            return
        done = self.installed.run(command, self.here, **self.variables)
        shown = done.stdout + done.stderr
        assert done.returncode == 0 or is_as_printed(shown, printed), f"$ {command}\n{shown}"
        assert "Traceback" not in shown, f"$ {command}\n{shown}"
        assert not printed.strip() or is_as_printed(shown, printed), f"$ {command}\n{shown}"

    def execute(self, block: str) -> None:
        """Execute Python of a page."""
        if self._python is None:
            self._python = subprocess.Popen(
                [*self.installed.found("python -c"), _PYTHON],
                cwd=self.folder,
                env=dict(self.installed.variables),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._python.stdin is not None
        assert self._python.stdout is not None
        self._python.stdin.write(json.dumps(block) + "\n")
        self._python.stdin.flush()
        assert self._python.stdout.readline() == "done\n", block

    def close(self) -> None:
        """End the Python of the page."""
        if self._python is not None:
            self._python.communicate(timeout=60)


@pytest.fixture
def session(installed: Installed, tmp_path: Path) -> Iterator[Session]:
    """A shell in an empty folder."""
    opened = Session(installed, tmp_path)
    yield opened
    opened.close()


def follow(session: Session, page: str, languages: frozenset[str] = frozenset()) -> None:
    """Type the commands of a page, and do what its other blocks of ``languages`` say: write files, execute Python."""
    for block in blocks(page):
        if block.file is not None:
            (session.folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language in languages and block.language == "python":
            session.execute(block.text)
        elif block.language in languages and block.is_project:
            (session.folder / "odibi.yaml").write_text(block.text, encoding="utf-8")
        for command, printed in block.commands:
            command = command.partition("  #")[0].strip()
            if command not in NOT_TYPED:
                session.type(command, printed)


def test_what_is_not_typed_stands_in_a_page_with_its_reason() -> None:
    shown = {command for page in PAGES for block in blocks(page) for command, _ in block.commands}
    assert NOT_TYPED.keys() <= shown
    assert all(NOT_TYPED.values())


def test_every_page_with_commands_is_followed() -> None:
    with_commands = {page for page in PAGES if any(block.commands for block in blocks(page))}
    assert with_commands == FOLLOWED.keys() | {"sql.md", "cdc.md", "extending.md"}


def _orders(session: Session) -> None:
    """The project of the README, with a file that has landed."""
    (session.folder / "odibi.yaml").write_text(project_of("README.md"), encoding="utf-8")
    (session.folder / "landing" / "orders").mkdir(parents=True)
    (session.folder / "landing" / "orders" / "1.csv").write_text("id,amount\n1,2.5\n", encoding="utf-8")


def _checkpoint(session: Session) -> None:
    """The checkpoint of the query that the page describes. The page does not say how it is made."""
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from odi_assets.config.models import SparkConfig\n"
        "from odi_assets.spark.session import open_session\n"
        "from odi_assets_tests.checkpoints.queries import STREAMING, make_join\n"
        "conf = {'spark.sql.shuffle.partitions': '2', **STREAMING}\n"
        "make_join(open_session(SparkConfig(master='local[2]', conf=conf)).spark, Path(sys.argv[1]))\n"
    )
    command = [sys.executable, "-c", script, str(session.folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


_AUDITED = """
project: audited
connections:
  landing: {type: local, base_path: landing}
  lake: {type: local, base_path: lake}
system: {connection: lake, path: system}
pipelines:
- pipeline: orders
  nodes:
  - name: raw_orders
    read:
      connection: landing
      format: csv
      path: "*.csv"
      schema: "id BIGINT, at TIMESTAMP"
      options: {header: "true"}
      incremental: {mode: stateful, column: at}
    write: {connection: lake, path: raw_orders, mode: upsert, keys: [id]}
"""


def _audited(session: Session) -> None:
    """A table of which somebody deleted one of the eight rows of a day."""
    (session.folder / "odibi.yaml").write_text(_AUDITED, encoding="utf-8")
    (session.folder / "landing").mkdir()
    days = ["2024-03-01", *["2024-03-02"] * 8, "2024-03-03"]
    lines = "".join(f"{number},{day}T08:00:00Z\n" for number, day in enumerate(days))
    (session.folder / "landing" / "1.csv").write_text(f"id,at\n{lines}", encoding="utf-8")
    session.installed.done("odi run", session.folder)
    DeltaTable(str(session.folder / "lake" / "raw_orders")).delete("id = 5")


def _nothing(session: Session) -> None:
    """The page begins with an empty folder."""


FOLLOWED: dict[str, tuple[Callable[[Session], None], frozenset[str]]] = {
    "README.md": (_nothing, frozenset()),
    "streaming.md": (_checkpoint, frozenset()),
    "cursors.md": (_nothing, frozenset()),
    "dagster.md": (_orders, frozenset()),
    "exactly-once.md": (_audited, frozenset()),
    "how-it-works.md": (_nothing, frozenset()),
    "lineage.md": (_nothing, frozenset({"yaml"})),
    "monitoring.md": (_orders, frozenset()),
    "state.md": (_nothing, frozenset({"python", "yaml"})),
}
"""By page: what is there before its first command, and which languages of its blocks belong to its session."""


@pytest.mark.usefixtures("jvm")
@pytest.mark.parametrize("page", FOLLOWED)
def test_the_commands_of_a_page_print_what_it_shows(page: str, session: Session) -> None:
    prepare, languages = FOLLOWED[page]
    prepare(session)
    follow(session, page, languages)


def write_olakes_state(folder: Path) -> None:
    """OLake's state, in the middle of its snapshot of the page's table."""
    state = {
        "chunks": [{"min": low, "max": high} for low, high in ((None, 2), (2, 3), (3, None))],
        "delivered_at": "2024-03-01T00:00:00.000000000Z",
        "sent_at": "2024-03-02T00:00:00.000000000Z",
    }
    stream = {"stream": "shipments", "namespace": "sales", "sync_mode": "", "state": state}
    text = json.dumps({"type": "STREAM", "version": 7, "streams": [stream]})
    (folder / "state.json").write_text(text, encoding="utf-8")


@pytest.mark.usefixtures("jvm")
def test_the_commands_of_the_page_on_databases_print_what_it_shows(
    databases: dict[str, Server | str], session: Session
) -> None:
    needs_drivers()
    shop = of_postgres(server_of(databases, "postgres"))
    shop.deliver(0)
    (session.folder / "odibi.yaml").write_text(project_of("sql.md"), encoding="utf-8")
    session.variables |= shop.variables
    write_olakes_state(session.folder)
    follow(session, "sql.md")
