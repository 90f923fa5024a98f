"""OLake: `state.json`."""
