"""The models that come with the package: reader, encoder, decider and quoting writer."""

__all__ = ["decider", "encoder", "features", "reader", "writer"]
