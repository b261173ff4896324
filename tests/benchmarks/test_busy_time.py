"""What the processor did for an engine, in whatever process."""

import subprocess
import sys

from benchmarks.busy_time import seconds_of, seconds_with_helpers

BUSY = """
import sys, time
while time.process_time() < 0.5: pass
print(flush=True)
sys.stdin.read()
"""


def test_a_helper_that_is_still_there_counts() -> None:
    pipe = subprocess.PIPE
    before = seconds_with_helpers(1) - seconds_of(1)
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=pipe, stdout=pipe) as helper:
        assert helper.stdin and helper.stdout
        helper.stdout.readline()
        assert 0.4 < seconds_with_helpers(1) - seconds_of(1) - before < 5
        helper.stdin.close()
