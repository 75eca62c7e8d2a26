"""Which folders and files of the system a confined server sees, and what its own files in /etc contain."""

MOUNTED_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store")
# Programs need these files of /etc to start, to know the time, and to check certificates.
ETC_FILES = (
    *("/etc/alternatives", "/etc/ca-certificates", "/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types"),
    *("/etc/os-release", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/ca-trust"),
    *("/etc/pki/tls/cert.pem", "/etc/timezone", "/etc/protocols", "/etc/services"),
)


def etc_texts(uid: int, gid: int) -> dict[str, str]:
    """The files of /etc that the sandbox has instead of the machine's, for a server with these ids."""
    return {
        "/etc/passwd": f"sandbox:x:{uid}:{gid}:sandbox:/tmp:/usr/sbin/nologin\n",
        "/etc/group": f"sandbox:x:{gid}:\n",
        "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }
