"""Distinguishes errors of this project, whose text says what to do, from others, whose class and traceback are needed."""


def is_ours(error: BaseException) -> bool:
    """Whether an error is raised by this project as one that a user may see."""
    return type(error).__module__.partition(".")[0] in ("orchestration", "publisher")
