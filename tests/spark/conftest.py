"""One Spark session for all tests of this folder; starting it takes seconds, so `make quick` leaves them to `make test`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from hopline.capture.jsonl import Import
from hopline.spark.run import FOR_LITTLE, JVM_FOR_LITTLE, Asked, Pipeline
from hopline.spark.session import spark_session
from tests.spark.generator import DOMAINS
from tests.spark.lake import copy_segments
from tests.spark.stories import World
from tests.spark.world import make_world

HERE = Path(__file__).parent
REFERENCE = Path(__file__).resolve().parents[3] / "shared" / "captures"

MANY = 60
"""Tests with a session, from which on its JVM is worth compiling for."""


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(300))  # the first one waits for the JVM, beside the other tests
            # One worker has the session, and so one JVM warms up and what tests share is made once; others do the rest.
            if "spark" in item.fixturenames:
                item.add_marker(pytest.mark.xdist_group("spark"))
            if item.path.name in ("test_cluster.py", "test_chaos.py"):
                item.add_marker(pytest.mark.heavy)


@pytest.fixture(scope="session")
def spark(request, tmp_path_factory) -> Iterator[SparkSession]:
    """The session, as commands make it for little data, on two cores; `made.py` has one for more.

    With all tests the JVM lives for many runs, and then it pays to compile well: of small runs of the pipeline in one JVM
    each was cheaper from the eighth on, a quarter from the twentieth, and all together from about the 25th.
    """
    place = tmp_path_factory.mktemp("spark")
    has_many = sum("spark" in item.fixturenames for item in request.session.items) >= MANY
    session = spark_session(
        "local[2]",
        app="hopline tests",
        conf={
            **FOR_LITTLE,
            **({} if has_many else JVM_FOR_LITTLE),
            "spark.sql.warehouse.dir": str(place / "warehouse"),
            "spark.local.dir": str(place / "local"),
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def reference(tmp_path_factory) -> str:
    """What the reference network sent, as a capture."""
    files = sorted(REFERENCE.glob("*.jsonl"))
    if not files:
        pytest.skip("reference captures are not part of the project")
    path = str(tmp_path_factory.mktemp("reference"))
    with Import(path) as capture:
        for file in files:
            capture.add(file)
    return path


@pytest.fixture(scope="session")
def world_tables(spark, tmp_path_factory) -> tuple[World, Path]:
    """A world with all that can go wrong in it, and its tables: made in two runs, as the second tells more of the first."""
    place, world = tmp_path_factory.mktemp("world"), make_world(seed=3)
    world.network.write(str(place / "all"))
    names = sorted(file.name for file in (place / "all").glob("*.arrows"))
    for part in (names[::2], names[1::2]):
        copy_segments(place / "all", place / "captures", part)
        Pipeline(str(place / "captures"), str(place / "tables"), Asked(domains=DOMAINS), session=lambda _: spark).run()
    return world, place / "tables"
