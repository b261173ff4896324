"""``python -m modelcc``: the command line."""

import sys

from modelcc.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
