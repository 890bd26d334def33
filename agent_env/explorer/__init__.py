"""The explorer: the page on which people watch runs, compare groups, find out why, and cancel."""
