"""Language models: prompts laid out and fenced, calls sent, limited, paid for and read."""

__all__ = ["adapter", "decision_wire", "fence", "gateway", "layout", "pace", "spending", "transport"]
