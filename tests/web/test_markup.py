"""HTML from elements: nothing that was text becomes markup, and nothing in a text is hidden."""

from __future__ import annotations

from editd_client.web.markup import Html, element, joined, text


def test_text_and_attributes_are_escaped() -> None:
    made = element("a", "<script>alert(1)</script>", href='"><img src=x onerror=y>')
    assert made == (
        '<a href="&quot;&gt;&lt;img src=x onerror=y&gt;">&lt;script&gt;alert(1)&lt;/script&gt;</a>'
    )


def test_markup_is_kept_and_none_is_left_out() -> None:
    assert element("p", element("b", "x"), None, ["y", [Html("<i>z</i>")]], 3) == "<p><b>x</b>y<i>z</i>3</p>"
    assert element("input", name="a", checked=True, disabled=False, value=None) == '<input name="a" checked>'
    assert element("p", class_="x", data_name="y") == '<p class="x" data-name="y"></p>'
    assert joined("a", "<") == "a&lt;"


def test_characters_that_reorder_or_hide_text_are_shown() -> None:
    assert text("a\u202eb") == 'a<span class="hidden-character">U+202E</span>b'
    assert "U+200B" in text("pass\u200bword")
    assert "U+001B" in text("\x1b[31m")
    assert text("tab\tand ümlaut") == "tab\tand ümlaut"


def test_bytes_that_are_no_text_can_be_sent() -> None:
    assert text("caf\udce9") == r"caf\xe9"
    assert r"caf\xe9" in element("p", title="caf\udce9")
