"""What a page cannot draw is said once a section, beside what it does draw."""

import re
from pathlib import Path

from collapselab.report.figures import FIGURES
from collapselab.report.report import contents, render
from collapselab.report.story import load_story
from report.suites import write_suite


def test_figures_without_data_are_listed_once_at_the_end_of_their_section(tmp_path: Path) -> None:
    shown = contents(load_story(write_suite(tmp_path, inside=False)))
    page = render(shown)
    seen = set[bool]()
    for name in {entry.section for entry in FIGURES.values()}:
        if f'<section id="{name}">' not in page:
            continue
        section = page.partition(f'<section id="{name}">')[2].partition("</section>")[0]
        figures = [shown.figures[key] for key, entry in FIGURES.items() if entry.section == name]
        absent = [figure for figure in figures if figure.missing]
        if not absent:
            continue
        drawn = any(figure.panels for figure in figures)
        seen |= {drawn}
        assert section.count('class="more not-drawn"') == 1, name
        assert ('class="more not-drawn" open' in section) != drawn, "folded beside what is drawn"
        assert 'class="missing"' not in section, name
        listed = section.partition('class="more not-drawn"')[2]
        for figure in absent:
            assert len(re.findall(f'id="figure-{figure.key}"', section)) == 1
            assert f'id="figure-{figure.key}"' in listed
    assert seen == {True, False}
