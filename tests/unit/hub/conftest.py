"""The formats of a lake, for the tests that hold for each."""

from __future__ import annotations

import pytest

from support.hub.lake_formats import FORMATS, VARIABLE


@pytest.fixture(params=FORMATS)
def each_lake_format(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test once with each format."""
    name = str(request.param)
    monkeypatch.setenv(VARIABLE, name)
    return name
