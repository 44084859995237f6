"""`python -m castiron` is the command line."""

from castiron.cli import main

main()
