"""The UI in a real browser: what people do there, and what they see then."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import quote

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from odi_assets.nodes.project import Project
from odi_assets.orchestration.automation.sensors import evaluate
from odi_assets.orchestration.runs.instance import open_instance
from odi_assets_tests.orchestration.small_project import PROJECT_FILE, land, make_project

REPOSITORY = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    "--window-size=4800,3000",
)
START_SECONDS, RUN_SECONDS = 240, 300

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="needs a browser: apt-get install chromium chromium-driver (chromium and chromedriver on PATH)",
)


TWO_SOURCES = (
    PROJECT_FILE
    + """
  - pipeline: air
    nodes:
      - name: stations
        read: {connection: landing, format: csv, path: stations*.csv, schema: "id BIGINT", incremental: files}
        transform: {function: "waits:wait"}
        write: {connection: lake, path: stations, mode: append}
      - name: wind
        read: {connection: landing, format: csv, path: wind/*.csv, schema: "id BIGINT", incremental: files}
        write: {connection: lake, path: wind, mode: append}
automation: {interval: 3s}
"""
)
"""The small project, and a pipeline of two nodes that do not know each other."""

WAITS = """
import time
from pathlib import Path


def wait(read):
    here = Path(__file__).parent
    while (here / "hold").exists():
        (here / "waiting").touch()
        time.sleep(0.1)
    return read
"""
"""A transform that waits as long as the file `hold` is there: a run of it can be cancelled at leisure."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the project."""
    made = tmp_path_factory.mktemp("ui")
    (made / "waits.py").write_text(WAITS, encoding="utf-8")
    make_project(made, "2024-01-01", "2024-01-02", text=TWO_SOURCES)
    (made / "landing" / "wind").mkdir()
    (made / "landing" / "wind" / "1.csv").write_text("1\n", encoding="utf-8")
    (made / "landing" / "stations.csv").write_text("1\n", encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """Dagster's UI and daemon over the project, with nothing run yet."""
    shutil.copy(REPOSITORY / ".dagster" / "dagster.yaml", folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).parent / "dagster"), "dev", "-m", "odi_assets.definitions"]
    environment = {**os.environ, "DAGSTER_HOME": str(folder), "ODI_PROJECT": str(folder / "odibi.yaml")}
    with (folder / "dev.log").open("w", encoding="utf-8") as log:
        server = subprocess.Popen(
            [*command, "-h", "127.0.0.1", "-p", str(port)],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _await_answer(f"http://127.0.0.1:{port}/server_info", server, folder / "dev.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            _stop(server)


def _await_answer(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, TimeoutError):
            time.sleep(0.5)
    pytest.fail(f"Dagster did not start within {START_SECONDS} s:\n{log.read_text(encoding='utf-8')[-4000:]}")


def _stop(server: subprocess.Popen[bytes]) -> None:
    # The session that was made for the server holds its daemon, code server and runs too, and nothing else.
    for sign in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(server.pid, sign)
            server.wait(timeout=20)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Chromium without a window, with an empty profile."""
    options = Options()
    for flag in [*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.binary_location = str(CHROMIUM)
    driver = webdriver.Chrome(service=Service(str(DRIVER)), options=options)
    driver.set_page_load_timeout(60)
    try:
        yield driver
    finally:
        driver.quit()


def _await_text(browser: webdriver.Chrome, *texts: str, seconds: float = 60) -> None:
    def shown(driver: webdriver.Chrome) -> bool:
        body = str(driver.execute_script("return document.body.innerText"))
        return all(text in body for text in texts)

    try:
        WebDriverWait(browser, seconds, poll_frequency=1).until(shown)
    except Exception as error:
        body = browser.execute_script("return document.body.innerText")
        raise AssertionError(f"{texts} not on {browser.current_url} within {seconds} s; there is:\n{body}") from error


def test_the_asset_graph_shows_sources_and_nodes(browser: webdriver.Chrome, address: str) -> None:
    expanded = quote("global@global:shop,global@global:sources")
    browser.get(f"{address}/asset-groups?expanded={expanded}")
    _await_text(browser, "raw_sales", "sales_by_day", "sources\nlanding\n", "–\nsales\n")


def test_a_materialization_started_in_the_ui_succeeds_and_shows_its_metadata(
    browser: webdriver.Chrome, address: str
) -> None:
    browser.get(f"{address}/assets/shop/raw_sales")
    _await_text(browser, "Never materialized", "Sales as they land.")
    button = next(b for b in browser.find_elements(By.TAG_NAME, "button") if b.text.strip() == "Materialize")
    button.click()
    _await_text(browser, "Launched run")
    browser.get(f"{address}/runs")
    _await_text(browser, "Success", seconds=RUN_SECONDS)
    browser.get(f"{address}/assets/shop/raw_sales")
    _await_text(browser, "hwm_after", "2024-01-02.csv", "rows_written", "delta_version", "Row count")


def _click(browser: webdriver.Chrome, text: str, seconds: float = 60) -> None:
    """Click the button with this text, once it may be clicked."""

    def found(driver: webdriver.Chrome) -> bool:
        named = (button for button in driver.find_elements(By.TAG_NAME, "button") if button.text.strip() == text)
        ready = next((button for button in named if button.is_enabled()), None)
        if ready is not None:
            ready.click()
        return ready is not None

    waiting = WebDriverWait(browser, seconds, poll_frequency=0.5, ignored_exceptions=[StaleElementReferenceException])
    try:
        waiting.until(found)
    except TimeoutException as error:
        there = [button.text.strip() for button in browser.find_elements(By.TAG_NAME, "button")]
        raise AssertionError(f"no button {text!r} on {browser.current_url}; there are {there}") from error


def _history(folder: Path, node: str, pipeline: str = "air") -> list[str]:
    """How the attempts of a node ended, oldest first."""
    runs = Project.load(folder / "odibi.yaml").open_state().list_runs(pipeline=pipeline, node=node)
    return [run.status.value for run in reversed(runs)]


def _await(what: Callable[[], bool], told: Callable[[], object]) -> None:
    deadline = time.monotonic() + RUN_SECONDS
    while not what():
        assert time.monotonic() < deadline, told()
        time.sleep(0.5)


def _await_history(folder: Path, node: str, *expected: str, pipeline: str = "air") -> None:
    _await(
        lambda: _history(folder, node, pipeline) == [*expected],
        lambda: f"{node}: {_history(folder, node, pipeline)}, not {expected}",
    )


def test_all_of_a_graph_with_partitions_is_launched_with_all_of_them(
    browser: webdriver.Chrome, address: str, folder: Path
) -> None:
    land(folder, "2024-01-03")
    browser.get(f"{address}/locations/odi_assets.definitions/asset-groups/shop/lineage")
    _click(browser, "Materialize all…")
    _click(browser, "All")
    _await_text(browser, "31 partitions")
    _click(browser, "Launch backfill")
    _await_text(browser, "Created backfill")


def test_all_of_a_pipeline_without_partitions_is_materialized_without_a_question(
    browser: webdriver.Chrome, address: str, folder: Path
) -> None:
    browser.get(f"{address}/locations/odi_assets.definitions/jobs/air")
    _click(browser, "Materialize all")
    _await_history(folder, "wind", "SUCCESS")
    _await_history(folder, "stations", "SUCCESS")
    browser.get(f"{address}/assets/air/stations?view=checks")
    _await_text(browser, "up_to_date", "last_new_rows", "stations.csv")


def test_a_broken_source_leaves_the_healthy_ones_beside_it_well(
    browser: webdriver.Chrome, address: str, folder: Path
) -> None:
    (folder / "landing" / "wind" / "2.csv").write_text("no number\n", encoding="utf-8")
    browser.get(f"{address}/locations/odi_assets.definitions/jobs/air")
    _click(browser, "Materialize all")
    _await_history(folder, "wind", "SUCCESS", "FAILURE")
    _await_history(folder, "stations", "SUCCESS", "NO_DATA")
    browser.get(f"{address}/runs")
    _await_text(browser, "Failure")
    # A page may be drawn before the run's last events reach it.
    browser.get(f"{address}/assets/air/wind")
    _await_text(browser, "Latest materialization", "Failed")
    browser.get(f"{address}/assets/air/stations")
    _await_text(browser, "Latest materialization")
    body = str(browser.execute_script("return document.body.innerText"))
    assert "Failed" not in body, body


def test_that_launch_took_in_all_that_was_new_and_the_next_run_repeats_nothing(folder: Path) -> None:
    # It went on while the tests before this one did other things.
    _await_history(folder, "raw_sales", "SUCCESS", "SUCCESS", pipeline="shop")
    for node in ("shops", "sales", "sales_by_day", "revenue"):
        _await_history(folder, node, "SUCCESS", pipeline="shop")
    assert _tables(folder) == ALL_ONCE
    command = [sys.executable, "-m", "odi_assets.cli", "run", "shop"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert ended.returncode == 0, ended.stderr
    assert _tables(folder) == ALL_ONCE
    with open_instance(folder) as instance:
        tick = evaluate(dg.build_sensor_context(instance=instance), Project.load(folder / "odibi.yaml"), "shop")
    assert isinstance(tick, dg.SkipReason)


ALL_ONCE: dict[str, list[tuple[object, ...]]] = {
    "raw_sales": [(sale,) for sale in range(1, 7)],
    "sales": [(sale,) for sale in range(1, 7)],
    "sales_by_day": [
        ("2024-01-01", "Oslo", 11.0),
        ("2024-01-01", "Rome", 5.5),
        ("2024-01-02", "Rome", 9.5),
        ("2024-01-03", "Oslo", 4.0),
    ],
    "revenue": [("2024-01-01", 16.5), ("2024-01-02", 9.5), ("2024-01-03", 4.0)],
}
"""The rows of the shop's tables once the sales of three days are in them."""


def _tables(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    columns = {
        "raw_sales": "id",
        "sales": "id",
        "sales_by_day": "CAST(day AS STRING), city, amount",
        "revenue": "CAST(day AS STRING), revenue",
    }
    found = {}
    for name, wanted in columns.items():
        table = QueryBuilder().register("t", DeltaTable(str(folder / "lake" / name)))
        rows = pa.RecordBatchReader.from_stream(table.execute(f"SELECT {wanted} FROM t")).read_all().to_pylist()
        found[name] = sorted(tuple(row.values()) for row in rows)
    return found


def test_what_is_new_in_all_nodes_is_taken_in_by_the_launchpad_of_the_job(
    browser: webdriver.Chrome, address: str, folder: Path
) -> None:
    nodes = ("raw_sales", "sales", "sales_by_day", "revenue")
    before = {node: _history(folder, node, "shop") for node in nodes}
    (folder / "landing" / "sales" / "more.csv").write_text("id,day,shop,amount\n7,2024-01-04,north,1.0\n")
    browser.get(f"{address}/locations/odi_assets.definitions/jobs/shop")
    _await_text(browser, "Materialize all…")
    button = next(b for b in browser.find_elements(By.TAG_NAME, "button") if b.text.strip() == "Materialize all…")
    ActionChains(browser).key_down(Keys.SHIFT).click(button).key_up(Keys.SHIFT).perform()
    _await_text(browser, "No errors", "No missing config")
    _click(browser, "Materialize")
    _await_text(browser, "without a partition specified")
    _click(browser, "Confirm")
    for node in nodes:
        _await_history(folder, node, *before[node], "SUCCESS", pipeline="shop")
    new: dict[str, tuple[object, ...]] = {
        "raw_sales": (7,),
        "sales": (7,),
        "sales_by_day": ("2024-01-04", "Oslo", 1.0),
        "revenue": ("2024-01-04", 1.0),
    }
    assert _tables(folder) == {name: [*rows, new[name]] for name, rows in ALL_ONCE.items()}


def test_the_sensor_takes_in_files_that_arrive(browser: webdriver.Chrome, address: str, folder: Path) -> None:
    (folder / "landing" / "wind" / "2.csv").write_text("2\n", encoding="utf-8")
    browser.get(f"{address}/locations/odi_assets.definitions/sensors/air_new_data")
    switch = WebDriverWait(browser, 60).until(
        lambda driver: driver.find_element(By.CSS_SELECTOR, "input[type=checkbox]"),
    )
    browser.execute_script("arguments[0].click()", switch)
    _await_history(folder, "wind", "SUCCESS", "FAILURE", "SUCCESS")
    assert len(_history(folder, "stations")) == 2, "it had nothing new, and was not in the run"
    browser.get(f"{address}/assets/air/wind")
    _await_text(browser, "Latest materialization", "Row count")


def test_a_run_that_is_cancelled_is_not_requested_again(browser: webdriver.Chrome, address: str, folder: Path) -> None:
    (folder / "hold").touch()
    (folder / "landing" / "stations_2.csv").write_text("2\n", encoding="utf-8")
    _await((folder / "waiting").exists, lambda: (folder / "dev.log").read_text(encoding="utf-8")[-4000:])
    browser.get(f"{address}/runs")
    run = WebDriverWait(browser, 60, ignored_exceptions=[StaleElementReferenceException]).until(_newest_run)
    browser.get(f"{address}/runs/{run}")
    _click(browser, "Terminate")
    _click(browser, "Terminate 1 run")
    _await_history(folder, "stations", "SUCCESS", "NO_DATA", "CANCELLED")
    browser.get(f"{address}/runs")
    _await_text(browser, "Canceled", "Success", "Failure")
    with open_instance(folder) as instance:
        ticks = partial(_ticks, instance)
        before = ticks()
        _await(lambda: ticks() >= before + 2, lambda: "the sensor does not tick")
        assert instance.get_runs(limit=1)[0].run_id == run


def _newest_run(browser: webdriver.Chrome) -> str | None:
    links = (link.get_attribute("href") or "" for link in browser.find_elements(By.TAG_NAME, "a"))
    return next((found[1] for link in links if (found := re.search(r"/runs/([0-9a-f-]{36})$", link))), None)


def _ticks(instance: dg.DagsterInstance) -> int:
    (sensor,) = (one for one in instance.all_instigator_state() if one.instigator_name == "air_new_data")
    return len(instance.get_ticks(sensor.instigator_origin_id, sensor.selector_id))
