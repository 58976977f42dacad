"""HTML and SVG as text: every value that is put in is escaped, every element is closed."""

from collections.abc import Iterable
from html import escape


class Markup(str):
    """Escaped already."""

    __slots__ = ()


Content = str | float | None
_VOID = frozenset({"meta", "br", "rect", "line", "path"})


def element(tag: str, /, *children: Content | Iterable[Content], **attributes: object) -> Markup:
    """Return an element; children that are not Markup are escaped.

    `class_` is class, `_` in a name is `-`; None and False leave an attribute out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    inner = join(*children)
    if tag in _VOID and not inner:
        return Markup(f"<{tag}{written}/>")
    return Markup(f"<{tag}{written}>{inner}</{tag}>")


def join(*children: Content | Iterable[Content]) -> Markup:
    return Markup("".join(_text(child) for child in children))


def _text(child: Content | Iterable[Content]) -> str:
    if child is None:
        return ""
    if isinstance(child, str):
        return child if isinstance(child, Markup) else escape(child, quote=False)
    if isinstance(child, float | int):
        return str(child)
    return "".join(_text(each) for each in child)
