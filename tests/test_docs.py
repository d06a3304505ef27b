"""What the documentation names is there: files, links, verbs and their options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from optimize.cli.main import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)")
FILE = re.compile(r"`((?:program|optimize|tests|benchmarks|docs|data)/[\w./-]+\.\w+)`")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def page_id(page: Path) -> str:
    return page.stem


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    assert [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    assert [file for file in FILE.findall(page.read_text()) if not (ROOT / file).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_command_of_a_page_is_one_that_ragc_has(page: Path) -> None:
    assert [line for line in commands(page.read_text()) if (why := fault(line)) and why] == []


def commands(text: str) -> Iterator[str]:
    """The `ragc ...` lines of the fenced blocks, without prompts, comments and what follows a pipe."""
    for block in FENCE.findall(text):
        for line in block.splitlines():
            found = re.search(r"(?:^|\$ |&& )(ragc [a-z].*)", line.strip())
            if found:
                yield re.split(r"\s+#|\s*[|>]|\s*\\$", found[1])[0]


def fault(line: str) -> str:
    """What is wrong with a command line: an unknown verb or option, or nothing."""
    command = typer.main.get_command(app)
    words = shlex.split(line)[1:]
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return f"no verb {words[0]}"
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    wrong = [word for word in words if word.startswith("--") and word.partition("=")[0] not in known | {"--help"}]
    return f"no option {wrong[0]}" if wrong else ""
