"""Projects that are made by a look at a database: see :mod:`odi_assets.scaffold.project`."""
