"""What goes wrong between us and Redis."""


class LinkError(Exception):
    """Redis did not do what it was asked.

    Attributes:
        reason: one of few words.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        """Say why, in the few words ``reason`` and in Redis's own."""
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
