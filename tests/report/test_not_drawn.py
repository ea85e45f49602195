"""What a page cannot draw is said once, folded, beside what it does draw."""

from pathlib import Path

from collapselab.report.data import load_report_data
from collapselab.report.figures import FIGURES
from collapselab.report.report import contents, render
from report.suites import write_suite


def test_every_figure_is_on_the_page_once_drawn_or_with_its_reason(tmp_path: Path) -> None:
    shown = contents(load_report_data(write_suite(tmp_path, inside=False)))
    page = render(shown)
    assert 'id="inside"' not in page, "nothing is drawn there"
    assert 'class="more not-drawn"' in page
    keys = [key for key, entry in FIGURES.items() if shown.data.kind in entry.kinds]
    assert keys
    assert any(shown.figures[key].missing for key in keys)
    for key in keys:
        assert page.count(f'id="figure-{key}"') == 1, key
