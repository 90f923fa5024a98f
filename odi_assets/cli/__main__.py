"""``python -m odi_assets.cli``."""

from odi_assets.cli import command

if __name__ == "__main__":
    raise SystemExit(command())
