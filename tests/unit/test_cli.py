"""How the command line ends when something is wrong."""

from __future__ import annotations

import pytest

from orchestration import cli
from orchestration.dlq import DlqError
from publisher import SettingsError


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (DlqError("no message is called 'x'"), "error: no message is called 'x'"),
        (SettingsError("max_rows is [0]"), "error: max_rows is [0]"),
        (KeyError("nobody thought of it"), "KeyError: 'nobody thought of it'"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], raised: Exception, said: str
) -> None:
    def fails() -> None:
        raise raised

    monkeypatch.setattr(cli, "app", fails)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == getattr(raised, "exit_code", 1)
    told = capsys.readouterr()
    assert (told.out, told.err.rstrip()) == ("", said)
