"""The database of ``odi init --example sql``: Apache Derby, which comes with Spark and needs no server.

``python -m odi_assets.sample.shop_db "INSERT INTO …"`` runs SQL in the database of the current folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from odi_assets.errors import ConfigError, OdiError
from odi_assets.spark.jvm.java import find_java

FOLDER = "shop_db"
TABLE = """
CREATE TABLE orders (order_id BIGINT PRIMARY KEY, customer VARCHAR(40) NOT NULL, amount DECIMAL(10,2) NOT NULL);
INSERT INTO orders VALUES (1, 'ann', 12.50), (2, 'bob', 8.00), (3, 'ann', 5.25), (4, 'cem', 40.00)
"""
_FAILED = "ERROR "
_IN_USE = "XSDB6"
"""Derby's code for a database that another JVM has open. The JVM of a run ends shortly after the run."""
_WAIT_SECONDS = 20.0


def execute(root: Path, statements: str, *, create: bool = False) -> str:
    """Run SQL in the database of a folder with Derby's own client, and return what it prints.

    Args:
        create: the database is not there yet.

    Raises:
        JavaError: there is no Java, or it is too old.
        ConfigError: Derby is not among Spark's JARs, there is no such database, or it refuses a statement.
    """
    java = str(find_java().executable)
    spec = find_spec("pyspark")
    jars = sorted((Path(str(spec.origin)).parent / "jars").glob("derby*.jar")) if spec else []
    if not jars:
        raise ConfigError("Spark's JARs have no Derby", fix="install pyspark with pip, or take another example")
    connect = f"CONNECT 'jdbc:derby:{FOLDER}{';create=true' if create else ''}';"
    with tempfile.NamedTemporaryFile("w", suffix=".sql", encoding="utf-8") as script:
        script.write(f"{connect}\n{statements.rstrip().rstrip(';')};\n")
        script.flush()
        path = os.pathsep.join(map(str, jars))
        options = ["-Dderby.stream.error.field=java.lang.System.err", "-Dij.showNoConnectionsAtStart=false"]
        command = [java, *options, "-cp", path, "org.apache.derby.tools.ij", script.name]
        attempts = Retrying(
            retry=retry_if_result(lambda done: _IN_USE in done.stdout),
            stop=stop_after_delay(_WAIT_SECONDS),
            wait=wait_fixed(0.5),
            retry_error_callback=lambda state: state.outcome and state.outcome.result(),
        )
        done = attempts(subprocess.run, command, cwd=root, capture_output=True, text=True, check=False)
    failed = next((line for line in done.stdout.splitlines() if line.startswith(_FAILED)), None)
    if failed or done.returncode:
        raise ConfigError(
            f"the database {root / FOLDER} refused it: {failed or done.stderr.strip()}",
            fix="let the run that reads it end first" if _IN_USE in done.stdout else "correct the SQL",
        )
    return done.stdout


def main(arguments: list[str]) -> int:
    """Run the SQL that the arguments are, and print what the database answers."""
    try:
        print(execute(Path.cwd(), " ".join(arguments)).strip())
    except OdiError as error:
        print(f"odi: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
