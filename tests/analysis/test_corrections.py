import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from statsmodels.stats.multitest import multipletests

from collapselab.analysis.resampling import holm


@pytest.mark.slow
@given(p=st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_that_of_statsmodels(p: list[float]) -> None:
    assert_allclose(holm(p), multipletests(p, method="holm")[1], rtol=1e-12, atol=0)


def test_holm_by_hand() -> None:
    assert_allclose(holm([0.04, 0.01, 0.03]), [0.06, 0.03, 0.06])
    assert np.max(holm([0.9, 0.8])) == 1
