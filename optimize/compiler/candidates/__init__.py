"""What each predictor may be given: demonstrations, instructions, a layout of its prompt."""

__all__ = ["demonstrations", "offers", "retrieval"]
