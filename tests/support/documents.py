"""A project of some documents, opened."""

from ragc import open_program


def open_documents(folder, files, about):
    """The program of the files, texts by name, in a folder that holds nothing yet; `about` is said of them."""
    for name, text in files.items():
        (folder / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "docs" / name).write_text(text)
    named = f'name = "p"\n[knowledge.docs]\nkind = "documents"\npath = "docs"\nabout = "{about}"\n'
    (folder / "ragc.toml").write_text(named)
    return open_program(folder)
