"""Re-ranking of a shortlist: the second stage."""
