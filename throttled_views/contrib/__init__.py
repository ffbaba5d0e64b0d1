"""Hooks for what others observe an application with; each needs an extra."""
