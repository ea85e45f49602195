"""Every number in a finding of README.md and docs/results is recomputed from the packed tables."""

import re
from dataclasses import replace
from pathlib import Path

import claim_list
import claims
import pytest
from claims import CLAIMS, Claim, one_line, stated

PAGES = ["README.md", *sorted(path.name for path in (claims.ROOT / "docs" / "results").glob("*.md"))]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.page}-{claim.numbers.__name__}")
def test_a_claim_is_on_its_page_with_the_numbers_of_the_tables(claim: Claim) -> None:
    path = claims.ROOT / (claim.page if claim.page == "README.md" else f"docs/results/{claim.page}")
    assert claim.rendered() in one_line(path.read_text("utf-8"))
    assert claim.written_numbers() == [], "numbers that nothing recomputes"


@pytest.mark.parametrize("page", PAGES)
def test_every_finding_of_a_page_is_a_claim(page: str) -> None:
    findings = stated(page)
    assert len(findings) >= (1 if page == "index.md" else 3)
    assert set(findings) <= {claim.rendered() for claim in CLAIMS if claim.page == page}


def test_the_table_of_directions_is_that_of_the_tables() -> None:
    page = (claims.ROOT / "docs" / "results" / "index.md").read_text("utf-8")
    rows = page.partition("## The NC1 metrics disagree")[2].partition("\n## ")[0]
    assert [row for row in rows.splitlines() if re.match(r"\| (?!contrast)\w", row)] == claim_list.nc1_directions()


def test_numbers_are_rounded_and_signed_as_on_the_pages() -> None:
    claim = Claim("cause.md", "r {:+.2f} [{:.3f}, {:,}] of `x_2`, {}", lambda: (-0.946, 0.0005, 1000, "code"))
    assert claim.rendered() == "r −0.95 [0.001, 1,000] of `x_2`, code"
    with pytest.raises(ValueError, match="more numbers"):
        replace(claim, text="r {}").rendered()
    assert replace(claim, text="two of `x_2` in {} and 0.5 of NC1").written_numbers() == ["two", "0", "5"]


def test_a_finding_that_is_not_a_claim_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs" / "results").mkdir(parents=True)
    (tmp_path / "docs" / "results" / "cause.md").write_text(
        f"# A\n\n**It is\n5.** No. **6**\n\n{claims.BEGIN}\n**7**\n"
    )
    (tmp_path / "README.md").write_text(
        f"1. no\n\n{claims.README_HEADING}\n\nNo.\n\n1. It\n   is 5.\n2. Six.\n\nNo.\n\n## B\n\n3. no\n"
    )
    monkeypatch.setattr(claims, "ROOT", tmp_path)
    assert stated("cause.md") == ["It is 5.", "6"]
    assert stated("README.md") == ["It is 5.", "Six."]


def test_statistics_have_known_answers() -> None:
    seeds = claims.pd.DataFrame({"seed": [0, 1, 2], "a": [1.0, 2.0, 3.0]})
    twice = seeds.assign(a=2 * seeds["a"])
    assert claims.interval([1, 2, 3]) == pytest.approx((2, 2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5))
    assert claims.ratio(twice, seeds, "a") == pytest.approx((2, 2, 2))
    assert claims.differences(twice.sample(frac=1, random_state=0), seeds, "a").tolist() == [1, 2, 3]
    r_value = claims.r_interval(claims.pd.Series([1, 2, 3, 5]), claims.pd.Series([1, 3, 2, 5]))[0]
    assert r_value == pytest.approx(7.75 / 8.75)
    for rows in (seeds.iloc[:2], seeds.assign(seed=0)):
        with pytest.raises(ValueError, match="not paired"):
            claims.differences(rows, seeds, "a")
    claims.moved(seeds, twice, rise=["a"])
    for wrong in (lambda: claims.moved(seeds, twice, fall=["a"]), lambda: claims.up((1, -0.1, 2)), lambda: claims.down((1, 0.1, 2)),
                  lambda: claims.where(seeds, seed=7)):  # fmt: skip
        with pytest.raises(ValueError, match=r"."):
            wrong()
