"""``python -m turnwheel``: look at sessions from a shell."""

import sys

from ._cli import main

sys.exit(main())
