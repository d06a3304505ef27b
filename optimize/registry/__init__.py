"""The versions of a program: published, aliased, compared and removed."""
