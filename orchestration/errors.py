"""Distinguishes errors of this project, whose text says what to do, from others, whose class and traceback are needed."""


def is_ours(error: BaseException) -> bool:
    """Whether the class of an error belongs to this project. The text of such an error is meant for users."""
    return type(error).__module__.partition(".")[0] in ("orchestration", "publisher")
