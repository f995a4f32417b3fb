"""``python -m tidegate`` is the command ``tidegate``."""

from tidegate.cli import main

main()
