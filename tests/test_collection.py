"""Compiling leaves Python's garbage collector as it was."""

import gc

import pytest

from modelcc.collection import no_cycle_collection


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_off_inside_and_as_before_afterwards(enabled: bool) -> None:
    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(RuntimeError), no_cycle_collection():
            assert not gc.isenabled()
            raise RuntimeError
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was else gc.disable)()
