"""What a classic session would do again for each small job, though its result is the same: two savings."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from odi_assets.spark.lazy import java_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


def spare(spark: SparkSession) -> None:
    """Let the jobs of a session cost less; only for a session that this package started.

    A Hadoop that keeps its settings in another way leaves the session as it is.
    """
    _remember_names(spark._jvm)
    try:
        _forget_origins(spark)
    except java_errors.Py4JJavaError as error:
        _log.info("Hadoop's settings are sent with the files that they came from: %s", error.java_exception)


def _remember_names(jvm: Any) -> None:
    """Ask the JVM for a class or a static method once.

    PySpark asks for both with each expression: two calls in three. For a class without its package, as `PythonUtils`,
    the JVM goes through its whole class path. Packages are not remembered: a JAR may bring a class of that name.
    """
    from py4j.java_gateway import JavaClass, JavaMember, JVMView  # type: ignore[import-untyped]

    class RememberedClass(JavaClass):  # type: ignore[misc]  # py4j has no types
        def __getattr__(self, name: str) -> Any:
            member = super().__getattr__(name)
            if type(member) is JavaMember:
                self.__dict__[name] = member
            return member

    class RememberingView(JVMView):  # type: ignore[misc]
        def __getattr__(self, name: str) -> Any:
            member = super().__getattr__(name)
            if type(member) is JavaClass:
                member.__class__ = RememberedClass
                self.__dict__[name] = member
            return member

    if type(jvm) is JVMView:
        jvm.__class__ = RememberingView


def _forget_origins(spark: Any) -> None:
    """Take out of Hadoop's settings which file each one came from.

    Each scan and each write sends all settings, about 1,100, through Java's serialization, and Hadoop compresses the
    name of each one's file by itself. Only ``Configuration.getPropertySources`` reads the names.
    """
    java, hadoop = spark._jvm.java.lang, spark._jvm.org.apache.hadoop
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    # What these two load adds files, and Hadoop then reads all of them again.
    java.Class.forName("org.apache.hadoop.mapred.JobConf")
    hadoop.fs.FileSystem.getFileSystemClass("file", configuration)
    configuration.size()
    origins = java.Class.forName("org.apache.hadoop.conf.Configuration").getDeclaredField("updatingResource")
    origins.setAccessible(True)
    origins.get(configuration).clear()
