"""``python -m suffice``."""

from suffice.cli.main import run

run()
