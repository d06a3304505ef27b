"""The models that come with the package: reader, encoder, decider and quoting writer."""
