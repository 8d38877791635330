"""Local features that are not the encoder's own. A source is looked up by name and imported singly."""
