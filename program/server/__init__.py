"""The door for people and programs: an OpenAI route, MCP, a page, reviews and metrics, over one program."""

__all__ = ["app", "feedback"]
