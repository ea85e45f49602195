import os

from hypothesis import HealthCheck, settings

settings.register_profile("quick", max_examples=15, deadline=None, derandomize=True)
settings.register_profile("ci", max_examples=60, deadline=None, derandomize=True)
settings.register_profile(
    "thorough", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "quick"))
