"""For all tests: none of them judges how long something took, Hypothesis included."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("neaptide", deadline=None)
settings.load_profile("neaptide")
