"""An error of the user's own Python says where it was raised: file, line, and the line's text."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import dagster as dg
import pytest
from pyspark.errors import utils as errors
from pyspark.sql import SparkSession

from odi_assets.cli import main
from odi_assets.config.graph import NodeKey
from odi_assets.errors import TransformError
from odi_assets.nodes.audit.audit import audit
from odi_assets.nodes.execution.errors import CORRECT
from odi_assets.nodes.project import Project
from odi_assets.orchestration.definitions import build_definitions
from odi_assets.util.user_code import worker_error_with_place
from odi_assets_tests.nodes.support import Sandbox

NODES = """
- pipeline: p
  nodes:
  - name: orders
    read: {connection: landing, format: csv, path: "orders/*.csv", schema: "id BIGINT, code STRING", incremental: files}
    transform: {function: "MODULE:f"}
    write: {connection: lake, path: orders, mode: append}
"""

PROJECT = """
project: user_code
connections: {landing: {type: local, base_path: landing}, lake: {type: local, base_path: lake}}
system: {connection: lake, path: system}
pipelines:"""


@pytest.fixture
def modules(tmp_path: Path) -> Iterator[Path]:
    """The project's folder; its modules are forgotten afterwards."""
    known, path = set(sys.modules), [*sys.path]
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - known:
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).is_relative_to(tmp_path):
            del sys.modules[name]


def failed(folder: Path, spark: SparkSession, module: str, **files: str) -> str:
    """What a run of a node says that calls ``f`` of a module. The same is in run history."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(dedent(text), encoding="utf-8")
    box = Sandbox(folder, spark, NODES.replace("MODULE", module))
    (folder / "landing" / "orders").mkdir(parents=True)
    (folder / "landing" / "orders" / "1.csv").write_text("1,USD\n", encoding="utf-8")
    with pytest.raises(TransformError) as raised:
        box.run("orders")
    return str(raised.value)


def test_the_line_of_a_function_is_named(modules: Path, spark: SparkSession) -> None:
    text = """
        RATES = {"EUR": 1}
        def f(df):
            return df.limit(RATES["USD"])
    """
    told = failed(modules, spark, "own_line", own_line=text)
    place = "own_line.py:4: KeyError: 'USD'\n    return df.limit(RATES[\"USD\"])"
    assert told == f"p.orders: own_line:f failed: {place}\n  → {CORRECT}"


def test_the_innermost_line_of_the_users_is_named_below_a_helper_and_above_a_library(
    modules: Path, spark: SparkSession
) -> None:
    helper = """
        import json
        def read(text):
            return json.loads(text)
    """
    told = failed(
        modules,
        spark,
        "uses_helper",
        uses_helper="import helping\ndef f(df):\n    return helping.read('{')\n",
        helping=helper,
    )
    assert "uses_helper:f failed: helping.py:4: JSONDecodeError: Expecting property name" in told
    assert told.endswith(f"\n    return json.loads(text)\n  → {CORRECT}")


def test_the_line_of_what_spark_refuses_is_named(modules: Path, spark: SparkSession) -> None:
    told = failed(modules, spark, "no_column", no_column="def f(df):\n    return df.select('amuont')\n")
    assert "no_column:f failed: no_column.py:2: AnalysisException: [UNRESOLVED_COLUMN" in told
    assert "\n    return df.select('amuont')" in told


UDF = """
from pyspark.sql import functions as F
RATES = {"EUR": 1}
def rate(code):
    return RATES[code]
def f(df):
    return df.withColumn("rate", F.udf(rate, "int")("code"))
"""
PANDAS_UDF = """
from pyspark.sql import functions as F
def f(df):
    @F.pandas_udf("int")
    def rate(codes):
        return codes.map({"EUR": 1}).astype(int)
    return df.withColumn("rate", rate("code"))
"""
COUNTED = UDF.replace("return df.withColumn", "df = df.withColumn") + "    df.collect()\n    return df\n"


@pytest.mark.parametrize(
    ("module", "text", "line", "shown"),
    [
        ("in_udf", UDF, "in_udf.py:5: KeyError: 'USD'", "return RATES[code]"),
        ("in_pandas_udf", PANDAS_UDF, "in_pandas_udf.py:6: ", 'return codes.map({"EUR": 1}).astype(int)'),
        ("collected", COUNTED, "collected.py:5: KeyError: 'USD'", "return RATES[code]"),
    ],
)
def test_the_line_of_a_function_of_rows_is_named(
    module: str, text: str, line: str, shown: str, modules: Path, spark: SparkSession
) -> None:
    told = failed(modules, spark, module, **{module: text})
    assert line in told
    assert shown in told
    assert "worker.py" not in told
    assert "at org.apache" not in told


STREAM = """
- pipeline: p
  nodes:
  - name: events
    read: {connection: landing, format: json, path: "events/*.json", schema: "code STRING"}
    stream: {}
    transform: {function: "in_stream:f"}
    write: {connection: lake, path: events, mode: append}
"""


def test_the_line_of_a_function_of_a_streams_rows_is_named(modules: Path, spark: SparkSession) -> None:
    (modules / "in_stream.py").write_text(UDF, encoding="utf-8")
    box = Sandbox(modules, spark, STREAM)
    box.land("events/1.json", ['{"code": "USD"}'])
    with pytest.raises(TransformError) as raised:
        box.run("events")
    assert "in_stream.py:5: KeyError: 'USD'\n    return RATES[code]" in str(raised.value)


def test_the_shell_and_run_history_say_it(
    modules: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    del spark
    for name in ("ODI_PROJECT", "ODI_DEBUG", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    (modules / "of_shell.py").write_text(UDF, encoding="utf-8")
    (modules / "odibi.yaml").write_text(PROJECT + NODES.replace("MODULE", "of_shell"), encoding="utf-8")
    (modules / "landing" / "orders").mkdir(parents=True)
    (modules / "landing" / "orders" / "1.csv").write_text("1,USD\n", encoding="utf-8")
    assert main(["run", "-c", str(modules / "odibi.yaml")]) == 1
    told = capfd.readouterr().err
    assert "of_shell.py:5: KeyError: 'USD'\n    return RATES[code]" in told
    assert main(["runs", "last", "p", "-c", str(modules / "odibi.yaml")]) == 0
    told = capfd.readouterr().out
    assert "of_shell.py:5: KeyError: 'USD'" in told
    assert "return RATES[code]" in told
    failure = dagster_failure(modules)
    assert "of_shell.py:5: KeyError: 'USD'\n    return RATES[code]" in failure


def dagster_failure(folder: Path) -> str:
    """What Dagster shows of the step that fails."""
    definitions = build_definitions(Project.load(folder / "odibi.yaml"), executor=dg.in_process_executor)
    done = definitions.resolve_job_def("p").execute_in_process(raise_on_error=False)
    (failure,) = [event for event in done.all_events if event.is_step_failure]
    error = failure.step_failure_data.error
    assert error is not None
    assert error.cause is not None
    return error.cause.message


@pytest.mark.parametrize(
    ("module", "text", "line"),
    [
        ("not_python", "def f(df)\n    return df\n", "not_python.py:1: SyntaxError: expected ':'\n    def f(df)"),
        (
            "lacks",
            "import no_such_package_at_all\ndef f(df): ...\n",
            "lacks.py:1: ModuleNotFoundError: No module named",
        ),
        ("raises", "\nX = {}['a']\ndef f(df): ...\n", "raises.py:2: KeyError: 'a'\n    X = {}['a']"),
    ],
)
def test_the_line_of_a_module_that_cannot_be_imported_is_named(
    module: str, text: str, line: str, modules: Path, spark: SparkSession
) -> None:
    told = failed(modules, spark, module, **{module: text})
    assert f"p.orders: importing {module} failed: {line}" in told


def test_the_line_of_a_module_of_nodes_is_named_when_the_project_is_loaded(modules: Path) -> None:
    (modules / "odibi.yaml").write_text(
        "project: p\nconnections: {lake: {type: local, base_path: lake}}\npython: [broken_nodes]\npipelines: []\n",
        encoding="utf-8",
    )
    (modules / "broken_nodes.py").write_text(
        "from odi_assets import node\n\n@node(pipline='p', write={})\ndef f(df): ...\n", encoding="utf-8"
    )
    with pytest.raises(TransformError) as raised:
        Project.load(modules / "odibi.yaml")
    assert "importing broken_nodes failed: broken_nodes.py:3: TypeError: node() got an unexpected" in str(raised.value)


def test_of_errors_while_others_were_handled_the_last_one_counts(tmp_path: Path) -> None:
    text = dedent(
        """
        Job aborted: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
          File "/own/a.py", line 2, in g
            first()
        ValueError: first

        During handling of the above exception, another exception occurred:

        Traceback (most recent call last):
          File "/usr/lib/python3.11/site-packages/pyspark/worker.py", line 9, in main
            process()
          File "/own/b.py", line 7, in h
            second()
            ^^^^^^^^
          File "/usr/lib/python3.11/json/decoder.py", line 1, in decode
        other.Odd: two
        lines

        \tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:1)
        Traceback (most recent call last):
          File "/own/c.py", line 9, in h
        """
    )
    assert worker_error_with_place(text, tmp_path) == "/own/b.py:7: other.Odd: two\n    second()\nlines"


def test_an_error_that_no_line_of_the_users_is_in_stays_as_it_is(tmp_path: Path) -> None:
    frame = '  File "/x/site-packages/pyspark/worker.py", line 9, in main\n'
    text = f"Traceback (most recent call last):\n{frame}OSError: no\n"
    assert worker_error_with_place(text, tmp_path) is None
    assert worker_error_with_place("[NO_TRACEBACK]", tmp_path) is None


def test_spark_hears_of_the_lines_of_a_function_and_of_none_of_ours(
    modules: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    (modules / "knows_lines.py").write_text(
        "from pyspark.sql import functions as F\ndef f(df):\n    return df.where(F.col('id') > 0)\n", encoding="utf-8"
    )
    box = Sandbox(modules, spark, NODES.replace("MODULE", "knows_lines"))
    (modules / "landing" / "orders").mkdir(parents=True)
    (modules / "landing" / "orders" / "1.csv").write_text("1,USD\n", encoding="utf-8")
    heard: list[str] = []
    capture = errors._capture_call_site

    def captured(depth: int) -> str:
        site = capture(depth + 1)  # the first one is of this function
        heard.append(site.splitlines()[-1])
        return site

    monkeypatch.setattr(errors, "_capture_call_site", captured)
    box.run("orders")
    audit(box.project, spark, box.state, NodeKey("p", "orders"))
    assert f"{modules / 'knows_lines.py'}:3" in heard
    assert {Path(site.rpartition(":")[0]).name for site in heard} == {"knows_lines.py"}, heard
