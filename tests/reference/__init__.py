"""The reference pages of docs/, generated from what the code itself says: `python -m tests.reference`."""


def fenced(kind: str, text: str) -> str:
    """Return a text as a block of code."""
    return f"```{kind}\n{text.rstrip()}\n```\n"
