import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile("quick", max_examples=15, deadline=None, derandomize=True)
settings.register_profile("ci", max_examples=60, deadline=None, derandomize=True)
settings.register_profile(
    "thorough", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "quick"))

LONGEST = ("test_docs.py", "test_train.py", "test_demo.py")
"""Files that take minutes. They come first, so that no worker is left with one when the others are done."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "notebooks" not in config.option.markexpr:  # they take minutes, and run when they are asked for
        asked_for = [item for item in items if "notebooks" in item.keywords and item.get_closest_marker("notebooks")]
        config.hook.pytest_deselected(items=asked_for)
        items[:] = [item for item in items if item not in asked_for]
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Operations of a small test cost more in waiting for a second thread than in work."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
