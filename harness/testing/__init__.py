"""neaptide in a pytest suite: scenario files as tests; clusters and checks as fixtures.

Loaded by pytest alone, by the entry point `pytest11`; docs/pytest.md says how it is used.
"""

from __future__ import annotations

from typing import Final

SUFFIX: Final = ".neaptide.toml"  # of scenario files that are tests
