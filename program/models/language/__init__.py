"""Language models: prompts laid out and fenced, calls sent, limited, paid for and read."""

__all__ = ["adapter", "fence", "gateway", "layout", "pace", "provider", "spending", "transport"]
