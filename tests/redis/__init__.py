"""Tests of the Redis store, against real servers."""
