"""Did training see the test? Class matching, image-level verification, training sets, and their statistics."""
