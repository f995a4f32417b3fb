"""The limit of open files."""

import subprocess
import sys


def test_the_limit_becomes_the_highest_that_is_allowed() -> None:
    program = """
import resource
from tidegate.runtime import descriptors
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 512))
descriptors.raise_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "(512, 512)\n"
