"""What ``python -m throttled_views`` runs: the command line."""

from throttled_views.cli import main

main()
