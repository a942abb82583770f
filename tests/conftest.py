"""For all tests: no property fails because the machine was busy."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("neaptide", deadline=None)
settings.load_profile("neaptide")
