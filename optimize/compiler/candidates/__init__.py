"""What each predictor may be given (demonstrations, instructions, a layout of its prompt), screened by labels."""

__all__ = ["demonstrations", "instructions", "labels", "layouts", "screening"]
