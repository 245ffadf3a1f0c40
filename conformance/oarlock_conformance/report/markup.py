"""Pieces of HTML: elements with escaped text, and tables."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

__all__ = ["Markup", "element", "join", "table", "tag", "text"]


class Markup(str):
    """Text that is HTML already; everything else is escaped when it is put into an element."""

    __slots__ = ()


def text(content: object) -> Markup:
    """``content`` as HTML: escaped, unless it is Markup."""
    return content if isinstance(content, Markup) else Markup(html.escape(str(content)))


def join(parts: Iterable[object]) -> Markup:
    """Several pieces, one after the other."""
    return Markup("".join(map(text, parts)))


def element(name: str, *content: object, **attributes: object) -> Markup:
    """An element. An attribute ``class_`` is spelt ``class``; one that is None or empty is left out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value not in (None, "")
    )
    return Markup(f"<{name}{given}>{join(content)}</{name}>")


def table(
    heads: Sequence[object], rows: Iterable[Sequence[object]], numbers: Sequence[int] = (), full: bool = False
) -> Markup:
    """A table; columns ``numbers`` are set as figures."""

    def cells(name: str, values: Sequence[object]) -> list[Markup]:
        return [element(name, value, class_="number" if i in numbers else "") for i, value in enumerate(values)]

    head = element("thead", element("tr", *cells("th", heads)))
    body = element("tbody", *(element("tr", *cells("td", row)) for row in rows))
    return element("div", element("table", head, body, class_="full" if full else ""), class_="wide")


def tag(state: str, words: object = "") -> Markup:
    """A coloured word for a state."""
    return element("span", words or state, class_=f"tag {state}")
