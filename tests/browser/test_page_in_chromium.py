"""The page as a reader meets it."""

import csv
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser.conftest import HOSTILE

pytestmark = pytest.mark.browser

MARKED = """
const marked = {};
const walk = (item, found) => {
  if (item.marktype === "symbol") for (const one of item.items) if (one.datum && one.datum.id !== undefined && one.opacity > 0.5) found.add(one.datum.id);
  for (const child of item.items || []) walk(child, found);
};
for (const [key, view] of collapselab.views) if (key.startsWith(arguments[0])) { const found = new Set(); walk(view.scenegraph().root, found); marked[key] = [...found].sort((a, b) => a - b); }
return marked;
"""
UNFOLD = """
for (const tabs of document.querySelectorAll(".tabs")) tabs.classList.remove("tabbed");
document.querySelectorAll("details").forEach(details => details.open = true);
"""
DRAWN = {
    True: "return document.documentElement.dataset.drawn === 'all'",
    False: "const places = document.querySelectorAll('#figure-collapse [data-panel], #figure-layers > .panels [data-panel]');"
    "return [...places].filter(p => p.offsetParent).every(p => p.dataset.state === 'drawn') && !!window.collapselab",
}
LOADED = """
const [load] = performance.getEntriesByType("navigation"), [paint] = performance.getEntriesByName("first-contentful-paint");
return [load.loadEventEnd, paint.startTime];
"""
CONTRAST = """
const parse = colour => { const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number); return { r, g, b, a }; };
const light = ({ r, g, b }) => { const f = v => { v /= 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }; return .2126 * f(r) + .7152 * f(g) + .0722 * f(b); };
const ground = element => { for (let e = element; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.a > 0) return c; } return { r: 255, g: 255, b: 255 }; };
const bad = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node; (node = walker.nextNode());) {
  const element = node.parentElement;
  if (!node.textContent.trim() || element.closest("script, style, [hidden], .mark-text") || !element.getClientRects().length) continue;
  const style = getComputedStyle(element), ink = parse(element.closest("svg") ? style.fill : style.color);
  const [a, b] = [light(ink), light(ground(element.closest("svg") ? element.closest(".chart") || element : element))].sort((x, y) => y - x);
  const ratio = (a + .05) / (b + .05);
  if (ratio < 4.5) bad.push([node.textContent.trim().slice(0, 40), element.className.baseVal ?? element.className, ratio]);
}
return bad;
"""


def opened(
    chromium: Any, page: Path, *, width: int = 1280, dark: bool = False, whole: bool = False, tab: str = "relations"
) -> Any:
    """The page at a tab when its first figure has been drawn; `whole`, when all have been that are not folded away."""
    chromium.get("about:blank")
    chromium.get_log("browser")
    chromium.get_log("performance")
    chromium.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    )
    wishes = {"prefers-color-scheme": "dark" if dark else "light", "prefers-reduced-motion": "reduce"}
    features = [{"name": name, "value": value} for name, value in wishes.items()]
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    chromium.get(f"{page.as_uri()}#{tab}")
    until(lambda: chromium.execute_script(DRAWN[whole]), "all figures drawn" if whole else "the first figure drawn")
    return chromium


def until(condition: Any, what: str, seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not: {what}"
        time.sleep(0.05)


def settle(chromium: Any) -> None:
    """Wait for two frames, after which what was asked of the figures has been drawn."""
    chromium.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50)))"
    )


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def click(chromium: Any, element: Any) -> None:
    chromium.execute_script(
        "arguments[0].scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'})", element
    )
    element.click()


def r_squared(suite: Path, metric: str, *, depth: str | None = None) -> tuple[float, int]:
    """From the tables themselves, with numpy."""
    runs = sorted(lines_of(suite / "runs.csv"), key=lambda run: float(run["epoch"]))
    last = {run["run"]: run for run in runs}  # one model for each run: its last checkpoint
    pairs = []
    for row in lines_of(suite / "results.csv"):
        run = last[row["run"]]
        whole = (row["split"], row["layer"], row["bin"]) == ("train", "last", "all")
        of_last = row["checkpoint"] == run["checkpoint"] and (depth is None or run["depth"] == depth)
        if whole and row["metric"] == metric and of_last:
            pairs.append((float(run["val_loss"]), float(row["value"])))
    return float(np.corrcoef(np.array(pairs).T)[0, 1] ** 2), len(pairs)


def fit_of(chromium: Any, metric: str) -> str:
    text: str = chromium.find_element("css selector", f"[data-fit='collapse-{metric}']").text
    return text


def drag(chromium: Any, metric: str) -> None:
    """Mark the better half of a panel's models with the mouse."""
    from selenium.webdriver import ActionChains

    chart = chromium.find_element("css selector", f"[data-panel='collapse-{metric}'] svg")
    chromium.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", chart)
    mouse = ActionChains(chromium).move_to_element_with_offset(chart, -60, -70).click_and_hold()
    mouse.move_by_offset(40, 60).move_by_offset(40, 60).release().perform()
    until(lambda: chosen(chromium) and everywhere(chromium), "some models marked, in every panel the same")


def chosen(chromium: Any) -> list[int]:
    found: list[int] = chromium.execute_script(
        "const { chosen } = collapselab.state; return chosen.all ? [] : Object.keys(chosen).map(Number)"
    )
    return sorted(found)


def everywhere(chromium: Any) -> bool:
    marked = chromium.execute_script(MARKED, "collapse")
    return all(found == chosen(chromium) for found in marked.values())


def test_nothing_is_asked_for_and_nothing_is_complained_about(chromium: Any, page: Path) -> None:
    opened(chromium, page, whole=True)
    assert [entry["message"] for entry in chromium.get_log("browser")] == []
    messages = [json.loads(entry["message"])["message"] for entry in chromium.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    foreign = [url for url in asked if not url.startswith(("data:", "blob:", "about:", page.as_uri()))]
    assert page.as_uri() in {url.partition("#")[0] for url in asked}
    assert foreign == []


def test_every_figure_is_drawn(chromium: Any, page: Path) -> None:
    opened(chromium, page, whole=True)
    chromium.execute_script(UNFOLD)
    states = "return [...document.querySelectorAll('[data-panel]')].map(place => [place.dataset.panel, place.dataset.state, place.querySelectorAll('svg path, svg line').length])"
    until(lambda: all(state == "drawn" for _, state, _ in chromium.execute_script(states)), "folded figures drawn")
    drawn = chromium.execute_script(states)
    assert len(drawn) >= 50
    assert [key for key, _, marks in drawn if marks < 5] == []


def test_230_models_open_in_under_two_seconds(chromium: Any, page: Path) -> None:
    opened(chromium, page, whole=True)
    assert max(chromium.execute_script(LOADED)) < 2000
    assert (
        chromium.execute_script(
            "return collapselab.models.filter(model => model.trained && model.val_loss !== null).length"
        )
        == 230 - 2
    )
    assert page.stat().st_size < 4_000_000


def test_300_runs_stay_usable(chromium: Any, large_page: Path) -> None:
    opened(chromium, large_page)
    assert chromium.execute_script("return new Set(collapselab.models.map(model => model.name)).size") == 300
    assert large_page.stat().st_size < 4_000_000
    assert max(chromium.execute_script(LOADED)) < 2000
    marked = time.monotonic()
    drag(chromium, "lognorm_cv")
    assert time.monotonic() - marked < 3, "marked in every panel, with the movements of the mouse"


def test_the_r_squared_of_a_panel_is_that_of_the_tables(chromium: Any, page: Path, suite: Path) -> None:
    opened(chromium, page)
    for metric in ("agreement", "lognorm_cv", "cdnv_k2"):
        expected, models = r_squared(suite, metric)
        assert fit_of(chromium, metric).startswith(f"R² {expected:.2f}")
        assert fit_of(chromium, metric).endswith(f", {models} runs")


def test_brushing_one_panel_marks_the_same_models_in_every_panel(chromium: Any, page: Path) -> None:
    opened(chromium, page, whole=True)
    everything = chromium.execute_script(MARKED, "collapse")
    top = "return document.querySelector('#figure-collapse .panels').getBoundingClientRect().top + scrollY"
    before = chromium.execute_script(top)
    drag(chromium, "lognorm_cv")
    assert chromium.execute_script(top) == before, "panels stay where they are while they are brushed"
    marked = chromium.execute_script(MARKED, "collapse")
    assert len(marked) == 7
    assert len({tuple(found) for found in marked.values()}) == 1
    some = next(iter(marked.values()))
    assert 0 < len(some) < len(next(iter(everything.values())))
    chromium.execute_script("document.querySelector('.bar [href=\"#training\"]').click()")
    until(
        lambda: chromium.execute_script(MARKED, "training").get("training-agreement") == some, "the same along training"
    )
    chromium.execute_script("document.querySelector('.bar [href=\"#relations\"]').click()")
    assert f"{len(some)} marked" in chromium.find_element("css selector", ".filters output").text


def test_brushing_another_panel_lets_go_of_the_first(chromium: Any, page: Path) -> None:
    opened(chromium, page)
    drag(chromium, "lognorm_cv")
    some = chosen(chromium)
    drag(chromium, "duality_cos_mean")
    until(lambda: chosen(chromium) != some and everywhere(chromium), "others marked, in every panel the same")
    first = chromium.execute_script("return collapselab.views.get('collapse-lognorm_cv').signal('brush')")
    assert not first


def test_filters_change_what_is_drawn_and_its_r_squared(chromium: Any, page: Path, suite: Path) -> None:
    opened(chromium, page)
    chromium.execute_script(
        "document.querySelectorAll('.filters [name=deep]').forEach(box => { box.checked = box.value === '4'; });"
        "document.querySelector('.filters [name=deep]').dispatchEvent(new Event('change', {bubbles: true}))"
    )
    settle(chromium)
    expected, models = r_squared(suite, "agreement", depth="4")
    assert fit_of(chromium, "agreement").startswith(f"R² {expected:.2f}")
    assert fit_of(chromium, "agreement").endswith(f", {models} runs")
    until(
        lambda: {len(found) for found in chromium.execute_script(MARKED, "collapse").values()} == {models},
        "the models of that depth in every panel",
    )
    click(chromium, chromium.find_element("css selector", ".filters [type=reset]"))
    until(
        lambda: fit_of(chromium, "agreement").endswith(f", {r_squared(suite, 'agreement')[1]} runs"), "all shown again"
    )


def test_models_are_marked_by_name_without_a_mouse(chromium: Any, page: Path) -> None:
    opened(chromium, page)
    chromium.find_element("css selector", ".filters [name=mark]").send_keys("12x1024-wd0.1")
    settle(chromium)
    until(lambda: len(chromium.execute_script(MARKED, "collapse")["collapse-agreement"]) == 1, "one model marked")
    marked = chromium.execute_script(MARKED, "collapse")
    names = chromium.execute_script(
        "return arguments[0].map(id => collapselab.models[id].name)", marked["collapse-agreement"]
    )
    assert names == ["12x1024-wd0.1-s0"]


def column(chromium: Any, name: str) -> list[str]:
    found: list[str] = chromium.execute_script(
        "const table = document.querySelector('#tables table'), names = [...table.querySelectorAll('th')].map(cell => cell.textContent);"
        "const i = names.indexOf(arguments[0]); return [...table.querySelectorAll('tbody tr')].map(row => row.cells[i].textContent)", name
    )  # fmt: skip
    return found


def test_the_table_sorts_and_searches(chromium: Any, page: Path) -> None:
    opened(chromium, page, tab="runs")
    head = next(b for b in chromium.find_elements("css selector", "#tables th button") if b.text == "val_loss")
    click(chromium, head)
    rising = [float(text) for text in column(chromium, "val_loss")]
    assert rising == sorted(rising)
    click(chromium, head)
    falling = [float(text) for text in column(chromium, "val_loss")]
    assert falling == sorted(falling, reverse=True)
    assert falling[0] > rising[0]
    chromium.find_element("css selector", "#tables [name=search]").send_keys("08x0256 wd0.1")
    assert set(column(chromium, "run")) == {"08x0256-wd0.1-s0"}
    assert "4 of 4 lines" in chromium.find_element("css selector", "#tables output").text


def test_a_saved_table_is_the_one_on_disk(chromium: Any, page: Path, suite: Path, tmp_path: Path) -> None:
    from selenium.webdriver.support.select import Select

    opened(chromium, page, tab="runs")
    chromium.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    Select(chromium.find_element("css selector", "#tables [name=table]")).select_by_visible_text("relate.csv")
    until(lambda: "p_permutation" in chromium.find_element("css selector", "#tables thead").text, "the table opened")
    click(chromium, chromium.find_element("css selector", "#tables [name=save]"))
    until(lambda: (tmp_path / "relate.csv").exists(), "the file saved")
    assert (tmp_path / "relate.csv").read_bytes() == (suite / "analysis" / "relate.csv").read_bytes()


@pytest.mark.parametrize("which", ["page", "arms_page", "hostile_page", "model_page", "models_page"])
def test_a_phone_needs_no_sideways_scrolling(chromium: Any, which: str, request: pytest.FixtureRequest) -> None:
    opened(chromium, request.getfixturevalue(which), width=390, whole=True)
    chromium.execute_script(UNFOLD)
    settle(chromium)
    assert chromium.execute_script("return document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("which", ["page", "model_page", "models_page"])
def test_all_text_stands_out_enough_to_be_read(
    chromium: Any, which: str, dark: bool, request: pytest.FixtureRequest
) -> None:
    opened(chromium, request.getfixturevalue(which), dark=dark, whole=True)
    assert chromium.execute_script(CONTRAST) == []


def test_light_and_dark_can_be_changed_by_keyboard(chromium: Any, page: Path) -> None:
    from selenium.webdriver import ActionChains, Keys

    opened(chromium, page)
    ground = "return getComputedStyle(document.body).backgroundColor"
    before = chromium.execute_script(ground)
    chromium.execute_script("document.querySelector('.skip').focus()")
    for _ in range(12):
        ActionChains(chromium).send_keys(Keys.TAB).perform()
        if chromium.switch_to.active_element.get_attribute("id") == "theme":
            break
    chromium.switch_to.active_element.send_keys(Keys.ENTER)
    assert chromium.execute_script(ground) != before


def test_every_control_can_be_reached_by_keyboard_and_has_a_name(chromium: Any, page: Path) -> None:
    opened(chromium, page)
    nameless = chromium.execute_script(
        "return [...document.querySelectorAll('button, select, input, summary, a')].filter(one => one.tabIndex < 0 ||"
        " !(one.textContent.trim() || one.getAttribute('aria-label') || (one.labels && one.labels.length))).map(one => one.outerHTML)"
    )
    assert nameless == []


def test_a_hostile_name_is_text_in_tables_and_bubbles(chromium: Any, hostile_page: Path) -> None:
    from selenium.webdriver import ActionChains

    opened(chromium, hostile_page)
    point = chromium.find_element("css selector", "[data-panel='collapse-agreement'] .mark-symbol path")
    chromium.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", point)
    ActionChains(chromium).move_to_element(point).perform()
    bubble = chromium.find_element("css selector", ".bubble")
    until(lambda: "×32" in bubble.text, "the bubble names the run by its label")
    assert HOSTILE in chromium.execute_script("return document.querySelector('main').textContent")
    assert chromium.execute_script("return document.querySelectorAll('img').length") == 0
    assert [entry["message"] for entry in chromium.get_log("browser")] == []


def test_it_prints_light_whole_and_within_the_paper(chromium: Any, page: Path) -> None:
    """Paper is about as wide as a large phone, and is no phone: verdicts stand side by side."""
    opened(chromium, page, dark=True, whole=True)
    chromium.execute_script("dispatchEvent(new Event('beforeprint'))")
    paper = {"width": 700, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", paper)
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    settle(chromium)
    found = chromium.execute_script("""
    const style = selector => getComputedStyle(document.querySelector(selector));
    return [
      getComputedStyle(document.documentElement).getPropertyValue("--paper").trim(), style(".filters").display,
      style(".fit").display, style(".strip .row").gridTemplateColumns.split(" ").length,
      document.documentElement.scrollWidth,
      [...document.querySelectorAll("#relations > .figure [data-panel]")].filter(place => !place.querySelector("svg")).length,
    ]""")
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    assert found[:3] == ["#ffffff", "none", "inline"]
    assert found[3] >= 2, "verdicts stand side by side"
    assert found[4:] == [700, 0]


def test_one_depth_is_drawn_without_a_complaint(chromium: Any, one_depth_page: Path) -> None:
    opened(chromium, one_depth_page, whole=True)
    marks = chromium.execute_script(
        "return [...document.querySelectorAll(\"[data-panel='collapse-agreement'] .mark-symbol path\")]"
        ".map(mark => mark.getAttribute('d'))"
    )
    models = chromium.execute_script("return collapselab.models.filter(model => model.compared).length")
    assert len(marks) == models
    assert not [mark for mark in marks if "NaN" in mark]
    assert [entry["message"] for entry in chromium.get_log("browser")] == []


def test_hovering_tells_a_model_s_numbers(chromium: Any, one_depth_page: Path) -> None:
    from selenium.webdriver import ActionChains

    opened(chromium, one_depth_page)
    point = chromium.find_element("css selector", "[data-panel='collapse-agreement'] .mark-symbol path")
    chromium.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", point)
    ActionChains(chromium).move_to_element(point).perform()
    bubble = chromium.find_element("css selector", ".bubble")
    until(lambda: "agreement" in bubble.text, "the bubble is there")
    told = bubble.text.split("\n")
    facts = dict(zip(told[::2], told[1::2], strict=True))
    model = next(
        one
        for one in chromium.execute_script("return collapselab.models")
        if (one["run"], one["checkpoint"]) == (facts["run"], facts["checkpoint"])
    )
    assert facts["validation loss"] == f"{model['val_loss']:.4f}"
    assert float(facts["agreement"]) == pytest.approx(model["agreement"], rel=1e-3)
    assert facts["parameters"] == f"{model['parameters']:,}"


PLACES = "return [...collapselab.views.keys()].filter(key => key.startsWith('width_lines')).length === 7"


def test_what_is_out_of_sight_follows_a_filter_too(chromium: Any, page: Path) -> None:
    """Lines of another regime are drawn wherever the reader is."""
    opened(chromium, page, whole=True)
    chromium.execute_script(UNFOLD)
    until(lambda: chromium.execute_script(PLACES), "folded lines drawn")
    chromium.execute_script("scrollTo(0, 0)")
    other = chromium.execute_script(
        "const list = document.getElementById('regime'); list.selectedIndex = list.selectedIndex ? 0 : 1;"
        "list.dispatchEvent(new Event('change')); return list.value"
    )
    heats = "return [...collapselab.views].filter(([key]) => key.startsWith('width_lines')).map(([, view]) => view.signal('where'))"
    until(lambda: other in chromium.execute_script(heats), "a panel is of the other regime")
    until(lambda: set(chromium.execute_script(heats)) == {other}, "every panel is of the other regime")
    assert set(chromium.execute_script(heats)) == {other}


def test_tabs_show_one_section_at_a_time_and_the_address_names_it(chromium: Any, page: Path) -> None:
    opened(chromium, page, tab="training")
    shown = "return [...document.querySelectorAll('.tab')].filter(tab => tab.offsetParent).map(tab => tab.id)"
    assert chromium.execute_script(shown) == ["training"]
    click(chromium, chromium.find_element("css selector", ".bar [href='#relations']"))
    assert chromium.execute_script(shown) == ["relations"]
    assert chromium.current_url.endswith("#relations")
    assert chromium.find_element("css selector", "#answer .headline").is_displayed()


def test_a_suite_s_page_is_short_until_it_is_unfolded(chromium: Any, page: Path) -> None:
    opened(chromium, page, whole=True)
    for tab in chromium.execute_script("return [...document.querySelectorAll('.tab')].map(tab => tab.id)"):
        chromium.execute_script("document.querySelector(`.bar [href='#${arguments[0]}']`).click()", tab)
        settle(chromium)
        words, height = chromium.execute_script(
            "return [document.body.innerText.split(/\\s+/).length, document.documentElement.scrollHeight]"
        )
        assert words <= 2500, tab
        assert height <= 8 * 900, tab


def test_the_profile_of_one_model_is_three_screens(chromium: Any, model_page: Path) -> None:
    opened(chromium, model_page, whole=True)
    assert chromium.execute_script("return document.documentElement.scrollHeight") <= 3.2 * 900
    assert len(chromium.find_elements("css selector", ".profile .fill")) == 7
    assert [entry["message"] for entry in chromium.get_log("browser")] == []


def test_a_token_that_is_searched_is_listed_and_marked(chromium: Any, model_page: Path) -> None:
    opened(chromium, model_page, whole=True)
    chromium.execute_script(UNFOLD)
    until(lambda: chromium.execute_script("return collapselab.views.has('token_frequency-cdnv')"), "panels drawn")
    chromium.find_element("css selector", ".token-search [name=find]").send_keys("a")
    settle(chromium)
    listed = chromium.find_elements("css selector", ".token-search tbody button")
    assert listed
    assert all("a" in token.text.lower() for token in listed if token.text)
    found = "return collapselab.views.get('token_frequency-cdnv').data('tokens found').length"
    until(lambda: chromium.execute_script(found) > 0, "tokens marked")


def test_models_are_sorted_searched_and_drawn_on_other_axes(chromium: Any, models_page: Path) -> None:
    opened(chromium, models_page, tab="models", whole=True)
    names = "return [...document.querySelectorAll('#overview tbody tr')].map(row => row.cells[0].textContent)"
    assert chromium.execute_script(names) == ["neo-16", "neo-32"]
    head = next(b for b in chromium.find_elements("css selector", "#overview th button") if b.text == "width")
    click(chromium, head)
    click(chromium, head)
    assert chromium.execute_script(names) == ["neo-32", "neo-16"]
    signal = "return collapselab.views.get('explore-axes').signal(arguments[0])"
    chromium.execute_script(
        "const list = document.querySelector('.axes [name=x]'); list.value = 'parameters';"
        "list.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    until(lambda: chromium.execute_script(signal, "xname") == "parameters", "the other axis")
    chromium.find_element("css selector", "#overview [name=search]").send_keys("neo-32")
    settle(chromium)
    assert chromium.execute_script(names) == ["neo-32"]
    until(lambda: len(chosen(chromium)) == 1, "the model that was searched is marked in the scatter")
    assert [entry["message"] for entry in chromium.get_log("browser")] == []
