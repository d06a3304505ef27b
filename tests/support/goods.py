"""A project of twelve short documents whose models are the stand-in provider, and questions about them without end."""

from ragc import open_program

GOODS = "kettle toaster lamp heater fan mixer scale radio clock shaver blender grinder".split()


def write_project(folder, url, provider="", models="", seconds=30.0):
    """Write the project; its models are the stand-in at `url`, a question may take `seconds`."""
    place = folder / "knowledge"
    place.mkdir(parents=True, exist_ok=True)
    for n, good in enumerate(GOODS):
        text = f"# The {good}\n## Guarantee\nThe {good} is guaranteed for {n + 2} years.\n"
        text += f"## Price\nThe {good} costs GBP {10 + 3 * n}.\n## Power\nThe {good} draws {100 * n + 50} watts.\n"
        (place / f"{good}.md").write_text(text, encoding="utf-8")
    models = models or 'decide = "openai/stand-in"\nwrite = "openai/stand-in"'
    toml = f'name = "goods"\n[models]\n{models}\n[budget]\nmax_seconds = {seconds}\n[provider]\n{provider}\n'
    toml += f'[provider.model."openai/stand-in"]\napi_base = "{url}"\n[knowledge.goods]\npath = "knowledge"\n'
    (folder / "ragc.toml").write_text(toml, encoding="utf-8")
    return folder


def program_at(url, folder, **settings):
    """Open the project's program; it looks at two passages a question."""
    rag = open_program(write_project(folder, url, **settings))
    rag.policy.turn(k=2, max_rounds=1)
    return rag


def ask_about(n):
    """Return the n-th question; all differ."""
    about = ("How long is the {} guaranteed", "What does the {} cost", "How many watts does the {} draw")[n % 3]
    return f"{about.format(GOODS[n % len(GOODS)])}? ({n})"
