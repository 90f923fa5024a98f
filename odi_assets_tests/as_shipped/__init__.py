"""What a page shows, done by the installed command: see :mod:`odi_assets_tests.as_shipped.installed`."""
