"""`python -m hopline`."""

from hopline.cli import main

main()
