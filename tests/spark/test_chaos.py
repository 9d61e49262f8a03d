"""A short chaos: the long one is `make chaos-pipeline`."""

import time

import pytest

from hopline.spark.run import Pipeline
from tests.e2e.chaos_pipeline import Chaos, differences


@pytest.mark.timeout(600)
def test_tables_do_not_show_that_the_pipeline_was_killed(spark, tmp_path):
    chaos = Chaos(tmp_path, kills=2, seed=3)
    started = time.monotonic()
    Pipeline(str(chaos.everything), str(tmp_path / "undisturbed"), session=lambda _: spark).run()
    chaos.run(usual_s=time.monotonic() - started)
    assert differences(chaos.tables, tmp_path / "undisturbed") == []
