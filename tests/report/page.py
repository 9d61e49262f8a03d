"""A page as people read it: its text, section by section."""

import re
from html.parser import HTMLParser
from pathlib import Path

_WHOLE_LINES = {"p", "tr", "li", "h1", "h2", "h3", "td", "th", "caption", "section", "article", "summary", "div", "title"}
"""Elements that do not stand in a line with others: between them there is something to see."""


class _Texts(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found, self._open = {}, [""]

    def handle_starttag(self, name, attributes):
        if name in ("section", "header", "footer"):
            self._open.append(dict(attributes).get("id") or name)
        self._put(" " if name in _WHOLE_LINES else "")

    def handle_endtag(self, name):
        self._put(" " if name in _WHOLE_LINES else "")
        if name in ("section", "header", "footer"):
            self._open.pop()

    def handle_data(self, text):
        self._put(text)

    def _put(self, text):
        self.found[self._open[-1]] = f"{self.found.get(self._open[-1], '')}{text}"


def text_of(page):
    """What each section says, by its name; `header` and `footer` too."""
    texts = _Texts()
    texts.feed(Path(page).read_text(encoding="utf-8"))
    texts.close()
    return {name: re.sub(r"\s+", " ", text).strip() for name, text in texts.found.items()}
