"""Which errors say what to do: ours are a text for a person, of any other the class and the traceback say more."""


def is_ours(error: BaseException) -> bool:
    """Whether an error is raised by this project as one that a user may see."""
    return type(error).__module__.partition(".")[0] in ("orchestration", "publisher")
