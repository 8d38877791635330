"""`python -m pipelines …` is `cairn …`."""

from pipelines.cli import main

main()
