"""The lineage in the forms that other tools read: a research object (RO-Crate), and OpenLineage events."""
