"""The results card, and the audit of results files: ours or another's."""

from cairn.card.audit import check_card
from cairn.card.document import read_document
from cairn.card.finding import SEVERITIES, Finding

__all__ = ["SEVERITIES", "Finding", "check_card", "read_document"]
