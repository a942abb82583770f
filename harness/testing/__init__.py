"""neaptide in a pytest suite: scenario files as tests; clusters and checks as fixtures.

Loaded by pytest alone, by the entry point `pytest11`; docs/pytest.md says how it is used.
"""
