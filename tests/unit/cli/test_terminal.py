"""One answer: who hears it."""

import sys

from hopline.cli.terminal import put


def test_that_nobody_listens_is_no_reason_to_fail(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)  # as after >&-
    put({"ok": True}, lambda *_: None, as_json=False)
    put({"ok": True}, lambda *_: None, as_json=True)
