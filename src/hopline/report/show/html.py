"""HTML that cannot be broken out of: text is escaped unless it was made here.

>>> tag("p", "<script>", tag("b", "bold"), class_="note")
'<p class="note">&lt;script&gt;<b>bold</b></p>'
"""

from collections.abc import Iterable
from datetime import datetime
from html import escape
from typing import Final, Literal

from hopline.report.show.words import clean, count, short, whole

_WHOLE: Final = 24
"""Names up to this length are not broken into lines."""

_LONGEST_ID: Final = 120
"""Letters of an id that are shown. Those of nodes have 36; a stranger may send any."""

_VOID: Final = frozenset({"br", "col", "link", "meta"})


class Html(str):
    """Text that is HTML already. Only `tag` and `joined` make it."""

    __slots__ = ()


Part = str | int | float | None | Iterable["Part"]
"""What can be inside of an element: HTML, or what is shown as text."""

Value = str | int | float | bool | None


def joined(*parts: Part) -> Html:
    """Put parts together; what is not HTML is escaped, what is None is left out."""
    return Html("".join(_html(part) for part in parts))


def tag(name: str, /, *parts: Part, **attributes: Value) -> Html:
    """Make an element. An underscore at the end of an attribute is dropped, others are dashes; None leaves it out."""
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    return Html(f"<{name}{given}>" if name in _VOID else f"<{name}{given}>{joined(*parts)}</{name}>")


def _html(part: Part) -> str:
    if part is None:
        return ""
    if isinstance(part, Html):
        return part
    if isinstance(part, str):
        return escape(clean(part, 4_000))
    if isinstance(part, int | float):
        return str(part)
    return "".join(_html(each) for each in part)


def _attribute(name: str, value: Value) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    shown = f"{value:.6g}" if isinstance(value, float) else clean(str(value), 4_000)
    return f' {name}="{escape(shown)}"'


def key(text: str | None, most: int = 40) -> Html:
    """A name that came over the network. If it is cut, all of it is in its title."""
    shown = short(text, most)
    kind = "key none" if not text else "key" if len(shown) > _WHOLE else "key whole"
    return tag("span", shown, class_=kind, title=_title(text, most))


def _title(text: str | None, most: int) -> str | None:
    return clean(text) if text and short(text, most) != text else None


def whole_id(text: str | None) -> Html | str:
    """The id of a flow or a sighting, all of it: on paper and on a phone no title can be seen. Nothing if there is none."""
    return tag("span", short(text, _LONGEST_ID), class_="key id", title=_title(text, _LONGEST_ID)) if text else ""


def number(value: int, id_: str | None = None) -> Html:
    """A number that a machine can read too."""
    return tag("data", count(value), value=value, id=id_)


def grave(value: int) -> Html:
    """A number that had better be 0."""
    return tag("b", count(value), class_="bad-text") if value else tag("span", "0", class_="zero")


def of(shown: int, all_: int) -> str:
    """The end of a caption, if not all is listed.

    >>> of(3, 3), of(3, 12)
    ('', ': the first 3 of 12')
    """
    return "" if shown >= all_ else f": the first {shown} of {all_:,}"


class Column:
    """A column of a table: its title, and whether it holds numbers."""

    def __init__(self, title: str, *, is_number: bool = False, kind: str = "") -> None:
        self.title = title
        self.kind = " ".join(filter(None, ("n" if is_number else "", kind))) or None


def numbers(*titles: str) -> list[Column]:
    """Columns of numbers."""
    return [Column(title, is_number=True) for title in titles]


def table(caption: str, columns: Iterable[Column], rows: Iterable[Iterable[Part]], *, class_: str = "") -> Html:
    """A table; the first cell of a row names it. On a narrow screen it scrolls, also with the keyboard."""
    columns = list(columns)
    head = tag("tr", [tag("th", column.title, scope="col", class_=column.kind) for column in columns])
    body = []
    for row in rows:
        cells = [
            tag("td" if place else "th", cell, class_=column.kind, scope=None if place else "row")
            for place, (column, cell) in enumerate(zip(columns, row, strict=True))
        ]
        body.append(tag("tr", cells))
    made = tag("table", tag("caption", tag("span", caption)), tag("thead", head), tag("tbody", body), class_=class_ or None)
    return tag("div", made, class_="scroll", tabindex=0, role="region", aria_label=caption)


def more(summary: str, *parts: Part) -> Html:
    """Something that is shown when asked for, and left out when printed."""
    return tag("details", tag("summary", summary), *parts)


def empty(reason: str) -> Html:
    """Why there is nothing to see."""
    sentence = f"{reason[:1].upper()}{reason[1:]}"
    return tag(
        "p", tag("b", "Nothing to show. "), f"{sentence}{'' if sentence.endswith(('.', '?')) else '.'}", class_="empty"
    )


def sums_of(unit: Literal["hour", "minute"], since: datetime | None, until: datetime | None) -> Html | None:
    """Which hours or minutes the sums of a section are of, if some time was asked for."""
    said = whole(unit, since, until)
    return tag("p", said, class_="caution") if said else None


def section(name: str, title: str, lead: Part, *parts: Part) -> Html:
    """A section of the page with a heading and one sentence that says what it shows."""
    heading = tag("h2", title, id=f"{name}-title")
    said = tag("p", lead, class_="lead") if lead else None
    return tag("section", heading, said, *parts, id=name, aria_labelledby=f"{name}-title")
