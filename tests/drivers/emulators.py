"""Emulators of the clouds, each with one bucket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.clouds import EMULATORS, Emulator
from testbed.servers import UnavailableError

BUCKET = "contract"


@pytest.fixture(scope="module", params=sorted(EMULATORS))
def emulator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Emulator, str]]:
    """With its URL."""
    found = EMULATORS[request.param]
    try:
        with found.running(tmp_path_factory.mktemp(found.scheme), BUCKET) as url:
            yield found, url
    except UnavailableError as e:
        pytest.fail(str(e))
