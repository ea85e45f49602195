"""The tests of `on_simulated_device.py`, in a process of their own.

PyTorch counts its devices at the first backward pass, and `fork_rng` asks every device that was ever registered.
"""

import subprocess
import sys
from pathlib import Path


def test_the_package_runs_on_a_simulated_accelerator() -> None:
    tests = Path(__file__).with_name("on_simulated_device.py")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout
    assert " passed" in run.stdout
