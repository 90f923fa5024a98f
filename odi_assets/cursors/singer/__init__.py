"""Singer and Meltano: bookmarks."""
