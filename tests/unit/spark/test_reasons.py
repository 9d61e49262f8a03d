"""Of the pages that Spark raises, the one line that says why. The texts are Spark's own, with short traces."""

import pytest

from hopline.errors import SparkError
from hopline.spark.reasons import reason_of

DISK_FULL = """\
An error occurred while calling o45.parquet.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/tables/x. SQLSTATE: 58030
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(QueryExecutionErrors.scala:823)
Caused by: org.apache.parquet.util.AutoCloseables$ParquetCloseResourceException: Unable to close resource
\tat org.apache.parquet.util.AutoCloseables.uncheckedClose(AutoCloseables.java:85)
\t... 1 more
Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
\tat org.apache.hadoop.fs.RawLocalFileSystem$LocalFSFileOutputStream.write(RawLocalFileSystem.java:549)
\t... 29 more
\tSuppressed: org.apache.hadoop.fs.FSError: java.io.IOException: Input/output error
\t\tat org.apache.hadoop.fs.RawLocalFileSystem$LocalFSFileOutputStream.write(RawLocalFileSystem.java:549)
\t\t... 31 more
\tCaused by: java.io.IOException: Input/output error
\t\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\t\t... 43 more
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\t... 43 more
"""

BELOW_A_FILE = """\
An error occurred while calling o42.parquet.
: org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is not a directory: file:/tables/file
\tat org.apache.hadoop.fs.RawLocalFileSystem.mkdirsWithOptionalPermission(RawLocalFileSystem.java:892)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""

OUR_OWN = """\
[PYTHON_DATA_SOURCE_ERROR] Failed to generate Python data source read partitions: Traceback (most recent call last):
  File "/hopline/spark/source.py", line 85, in partitions
    return shares(self._stretches(), self._options.share_bytes)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
hopline.errors.CaptureError: /nowhere is no folder
 SQLSTATE: 38000"""

OF_PYTHON = """\
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/hopline/spark/pieces.py", line 12, in read
    open("/nowhere/x")
FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/x'
"""

OF_PYTHON_IN_JAVA = """\
An error occurred while calling o45.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2935)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/hopline/spark/pieces.py", line 12, in read
    next(batches)
ValueError: first

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/hopline/spark/pieces.py", line 14, in read
    1 / 0
    ~~^~~
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""

NOT_FOUND = "[PATH_NOT_FOUND] Path does not exist: file:/nowhere. SQLSTATE: 42K03"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (DISK_FULL, "java.io.IOException: No space left on device"),
        (
            BELOW_A_FILE,
            "org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is not a directory: file:/tables/file",
        ),
        (OUR_OWN, "hopline.errors.CaptureError: /nowhere is no folder"),
        (f"{OUR_OWN}\nCaused by: java.io.EOFException", "hopline.errors.CaptureError: /nowhere is no folder"),
        (OF_PYTHON, "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/x'"),
        (OF_PYTHON_IN_JAVA, "ZeroDivisionError: division by zero"),
        (f"{OF_PYTHON_IN_JAVA}Caused by: java.io.EOFException", "java.io.EOFException"),
        (NOT_FOUND, NOT_FOUND),
        ("\n  Py4JNetworkError: Answer from Java side is empty\nmore", "Py4JNetworkError: Answer from Java side is empty"),
        ("", "ValueError"),
        ("\n", "ValueError"),
    ],
    ids=["full", "below", "ours", "ours first", "python", "in java", "after", "spark", "other", "none", "blank"],
)
def test_the_line_that_says_why(text, reason):
    assert reason_of(ValueError(text)) == reason


def test_an_error_of_ours_is_its_own_sentence():
    assert reason_of(SparkError("SPARK_NO_JAVA", "Spark needs Java")) == "Spark needs Java"
