"""The page's policy, asked of a real browser: figures are drawn, and nothing else runs or is fetched."""

from pathlib import Path
from typing import Any

import pytest

from browser.conftest import HOSTILE
from browser.test_page_in_chromium import opened

pytestmark = pytest.mark.browser

FOREIGN = """
const done = arguments[0], found = {};
document.addEventListener("securitypolicyviolation", event => { found[event.effectiveDirective] = true; });
window.ran = [];
const script = document.createElement("script");
script.textContent = "window.ran.push('inline')";
document.body.append(script);
const image = document.createElement("img");
image.setAttribute("onerror", "window.ran.push('handler')");
image.src = "https://example.invalid/x.png";
document.body.append(image);
fetch("https://example.invalid/").catch(() => {});
setTimeout(() => done([window.ran, Object.keys(found).sort()]), 500);
"""


def test_figures_are_drawn_under_a_policy_that_runs_nothing_else(chromium: Any, hostile_page: Path) -> None:
    opened(chromium, hostile_page, whole=True)
    assert [entry["message"] for entry in chromium.get_log("browser")] == []
    drawn = chromium.execute_script(
        "return document.querySelectorAll('[data-state=drawn] svg .mark-symbol path').length"
    )
    assert drawn > 0, "Vega's expressions were computed, without eval"
    assert HOSTILE in chromium.execute_script("return document.body.textContent")
    ran, refused = chromium.execute_async_script(FOREIGN)
    assert ran == []
    assert {"script-src-elem", "script-src-attr", "img-src", "connect-src"} <= set(refused)
