"""The simulations behind the rates of statistics.md run, find what is planted, and hardly claim what is not."""

import importlib.util
import sys
import zlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.stats import binom

SCRIPT = Path(__file__).parents[2] / "docs" / "effect_error_rates.py"
NULL, PLANTED = 4, 3


def _rates() -> ModuleType:
    spec = importlib.util.spec_from_file_location("effect_error_rates", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


RATES = _rates()


@pytest.mark.parametrize("name", RATES.VERDICTS)
def test_a_verdict_is_given_where_it_is_true_and_hardly_where_it_is_not(name: str) -> None:
    claims, rng = RATES.VERDICTS[name].claims, np.random.default_rng(zlib.crc32(name.encode()))
    wrong = sum(claims(rng, False) for _ in range(NULL))
    assert binom.sf(wrong - 1, NULL, 0.05) > 0.001
    assert any(claims(rng, True) for _ in range(PLANTED))
