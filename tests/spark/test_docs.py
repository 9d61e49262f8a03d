"""The page about Spark is executed, with the session of all tests here."""

import doctest
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_examples_of_the_page(spark, monkeypatch):
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "spark.md").read_text()
    text = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    test = doctest.DocTestParser().get_doctest(text, {"__name__": "__main__", "spark": spark}, "spark.md", "spark.md", 0)
    assert doctest.DocTestRunner().run(test).failed == 0
