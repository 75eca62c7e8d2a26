"""The owner of its first root decides which user and group a confined server runs with."""

import os
import pwd

import pytest

from holdfast.sandbox.user_and_group import NOBODY, owner_ids


def folder_owned_by(uid: int, gid: int) -> os.stat_result:
    return os.stat_result((0o40770, 1, 1, 2, uid, gid, 4096, 0, 0, 0))


@pytest.mark.promise("BOX-01")
@pytest.mark.parametrize("folder_group", [0, 4321])
def test_owner_keeps_the_primary_group_of_the_account(folder_group: int) -> None:
    owner = pwd.getpwnam("daemon")

    assert owner_ids(folder_owned_by(owner.pw_uid, folder_group)) == (owner.pw_uid, owner.pw_gid)


@pytest.mark.promise("BOX-01")
def test_owner_without_an_account_gets_the_group_of_nobody() -> None:
    assert owner_ids(folder_owned_by(4321, 0)) == (4321, NOBODY)
