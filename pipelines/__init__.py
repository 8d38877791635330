"""How the steps run: through DVC, in Dagster, and from the command line."""
