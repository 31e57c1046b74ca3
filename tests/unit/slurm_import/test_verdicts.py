"""Secrets are hidden in values and in reasons, whatever the form of the option that has them."""

from __future__ import annotations

import pytest

from headway.slurm_import.verdicts import Item, Ledger, hide_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rw,password2=sesame,uid=0", "rw,password2=(secret),uid=0"),
        ("user=svc%sesame,uid=0", "user=svc%(secret),uid=0"),
        ('client.secret-2 = "open sesame" x', "client.secret-2=(secret) x"),
        ("//svc:open@sesame@filer/x", "//(secret)@filer/x"),
        ("name=a,secretfile=/etc/ceph/a,token_path=/b", "name=a,secretfile=/etc/ceph/a,token_path=/b"),
        ("pass" * 50_000, f"{'pass' * 49}p..."),
    ],
)
def test_secrets_of_values_and_reasons_are_hidden(text: str, shown: str) -> None:
    assert hide_secrets("Options", text) == shown
    ledger = Ledger()
    item = ledger.read(Item("fstab", 1, "/x", ""))
    ledger.dropped(item, f"{text} has a fault")
    ((_, found),) = ledger.entries()
    assert ("sesame" in found.why, found.why.endswith(" has a fault")) == (False, True)
