"""The tests of throttled_views, one file for each module."""
