"""What a person reads of a compile or a project: page, estimate, check-up."""

__all__ = ["doctor", "estimate", "monitoring", "page"]
