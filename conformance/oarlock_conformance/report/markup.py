"""Pieces of HTML: elements with escaped text, and tables."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

__all__ = ["Markup", "element", "html_page", "join", "table", "tag", "text"]


_VOID = ("input", "meta")
"""Elements that have no content and no end."""


class Markup(str):
    """Text that is HTML already; everything else is escaped when it is put into an element."""

    __slots__ = ()


def text(content: object) -> Markup:
    """``content`` as HTML: escaped, unless it is Markup."""
    return content if isinstance(content, Markup) else Markup(html.escape(str(content)))


def join(parts: Iterable[object]) -> Markup:
    """Several pieces, one after the other."""
    return Markup("".join(map(text, parts)))


def element(kind: str, *content: object, **attributes: object) -> Markup:
    """An element. An attribute ``class_`` is spelt ``class``; one that is None or empty is left out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value not in (None, "")
    )
    if kind in _VOID:
        return Markup(f"<{kind}{given}>")
    return Markup(f"<{kind}{given}>{join(content)}</{kind}>")


def html_page(title: str, style: str, body: Markup, script: str = "") -> str:
    """A whole document. ``script`` is the hash of the one script that may run; nothing is loaded from anywhere."""
    allowed = f"; script-src '{script}'" if script else ""
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:{allowed}"
    head = join(
        [
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", http_equiv="Content-Security-Policy", content=policy),
            element("title", title),
            element("style", Markup(style)),
        ]
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'


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
