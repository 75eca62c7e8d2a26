"""Which folders the running confined servers can write."""

from pathlib import Path

from holdfast.model.confined_folders import ConfinedFolders
from holdfast.model.process import Confinement


def test_folder_counts_until_the_last_server_in_it_has_ended():
    folders, confinement = ConfinedFolders(), Confinement(roots=("/home/ann/blog",))

    with folders.running(confinement):
        with folders.running(confinement), folders.running(None):
            pass
        during = folders.contain("/home/ann/blog/post.md")

    assert (during, folders.contain("/home/ann/blog/post.md")) == (True, False)


def test_path_counts_if_it_is_anywhere_below_a_root():
    folders = ConfinedFolders()

    with folders.running(Confinement(roots=("/home/ann/blog", "/srv"))):
        found = [
            path
            for path in (
                "/home/ann/blog/a/b",
                "/srv/x",
                "/home/ann/blogger/a",
                "/home/ann/x",
                "/home/ann/blog",
            )
            if folders.contain(path)
        ]

    assert found == ["/home/ann/blog/a/b", "/srv/x"]


def test_root_of_the_file_system_contains_everything():
    folders = ConfinedFolders()

    with folders.running(Confinement(roots=("/",))):
        assert folders.contain(str(Path("/etc/passwd")))
