"""Every number in a finding of README.md and docs/results is recomputed from the packed tables."""

import re
from pathlib import Path

import claim_list
import claims
import pytest
from claims import compared, mismatches, stated

PAGES = ["README.md", *sorted(path.name for path in (claims.ROOT / "docs" / "results").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES)
def test_the_numbers_in_the_findings_of_a_page_are_those_of_the_tables(page: str) -> None:
    assert len(stated(page)) >= (1 if page == "index.md" else 3)
    assert mismatches(page) == []


def test_the_table_of_directions_is_that_of_the_tables() -> None:
    page = (claims.ROOT / "docs" / "results" / "index.md").read_text("utf-8")
    rows = page.partition("## The NC1 metrics disagree")[2].partition("\n## ")[0]
    assert [row for row in rows.splitlines() if re.match(r"\|(?!contrast)\w", row)] == claim_list.nc1_directions()


def test_numbers_are_compared_as_they_are_written() -> None:
    finding = "r −0.95 [0.001, 1,000] of `x_2`, NC1 of stories260K and 9.9e−07 for qwen3 ([page](a1.md))"
    numbers = (-0.946, 0.0005, 1000, 9.87e-7, "qwen3")
    assert compared(finding, numbers) == []
    assert compared(finding, (-0.944, *numbers[1:])) == ["-0.95 should be -0.94"]
    assert compared(finding, (0.946, *numbers[1:])) == ["-0.95 should be 0.95"]
    assert compared(finding, (*numbers[:4], "gpt2")) == ["gpt2 is not there"]
    assert len(compared(finding, numbers[1:])) == 1
    assert compared("up by +0.5 in two runs", [0.51]) == ["two is a number in words"]


def test_a_finding_that_is_not_a_claim_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs" / "results").mkdir(parents=True)
    (tmp_path / "docs" / "results" / "cause.md").write_text(
        f"# A\n\n**It is\n5.** No. **6**\n\n{claims.BEGIN}\n**7**\n"
    )
    (tmp_path / "README.md").write_text(
        f"1. no\n\n{claims.README_HEADING}\n\nNo.\n\n1. It\n   is 5.\n2. Six.\n\nNo.\n\n## B\n\n3. no\n"
    )
    monkeypatch.setattr(claims, "ROOT", tmp_path)
    monkeypatch.setattr(claims, "CLAIMS", [("cause.md", lambda: [4])])
    assert stated("cause.md") == ["It is 5.", "6"]
    assert stated("README.md") == ["It is 5.", "Six."]
    assert mismatches("cause.md") == ["2 findings, 1 claims", "<lambda>: 5 should be 4"]


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
