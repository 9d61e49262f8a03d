"""The page about Spark is executed, with the session of all tests here."""

import doctest
import re
from pathlib import Path

from tests.spark.receiver import Receiver, Shop

ROOT = Path(__file__).parents[2]


def test_examples_of_the_page(spark, monkeypatch):
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "spark.md").read_text()
    text = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    shop = Shop()
    with Receiver(shop) as receiver:
        known = {"__name__": "__main__", "spark": spark, "address": receiver.address}
        test = doctest.DocTestParser().get_doctest(text, known, "spark.md", "spark.md", 0)
        assert doctest.DocTestRunner().run(test).failed == 0
    assert len(shop.taken) == 5
