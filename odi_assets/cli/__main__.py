"""``python -m odi_assets.cli``."""

from odi_assets.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
