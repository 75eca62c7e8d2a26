"""Recognise a secret by its name: `API_KEY`, `DB_PASS`, `x-auth-token`."""

import re
from collections.abc import Mapping
from functools import lru_cache

from holdfast.model.json import Json

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_MAX_NAME = 100  # only the end of a longer name is checked


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SECRET_WORDS = _words(
    "apikey auth authorization bearer cookie cookies cred creds credential credentials jwt otp passcode passphrase passwd"
    " password passwords pat pwd secret secrets sig signature token"
)
_SECRET_ENDINGS = ("apikey", "credentials", "passcode", "passphrase", "passwd", "password", "secret", "token")
_SECRET_PAIRS = {("pass", "word"), ("pass", "phrase"), ("pass", "code"), ("pass", "key")}
# `keys` and `tokens` are ordinary words, unless one of these words is before them.
_BEFORE_PLURAL = _words("access api auth bearer encryption private refresh secret signing ssh")

# A name that ends with one of these says something about a secret and is not one: `TOKEN_URL`, `password_file`.
_DESCRIPTIONS = _words(
    "alg algorithm budget count dir email enabled endpoint env expiration expires expiry field file files folder format"
    " helper hint host in kind length limit method mode name names path paths policy port prefix provider realm required"
    " scheme scope scopes size sock status store suffix timeout ttl type uri url urls usage user username var variable"
    " version"
)
# After one of these, `key` is an ordinary word: `primary_key`, `sort_key`. The next two lists do the same for `token` and `pass`.
_BEFORE_HARMLESS_KEY = _words(
    "alt any arrow attribute attr bucket by cache column composite config ctrl dedup dict down each enum event field"
    " foreign group hash hot i18n id idempotency index issue item json label last less locale lookup low map message"
    " meta metric modifier name natural next object old on option order page param parent parse partition per press primary"
    " project property pub public query range registry routing row s same setting shard shift short sort space"
    " surrogate tab tag text the translation turn type unique up usage"
)
_BEFORE_HARMLESS_TOKEN = _words(
    "bos cancel cancellation continuation cursor eos mask max next page pad per progress sep special start stop sync unk"
    " nextpage"
)
_BEFORE_HARMLESS_PASS = _words(
    "band boarding by com encom first forward high last low max min multi num one over render second single sub sur tres two"
    " under ask"
)
# Before one of these, `pass` is an ordinary word: `pass_through`.
_AFTER_HARMLESS_PASS = _words("along args by criteria fail if number on over rate ratio through thru to")
_ORDINARY_WORDS = _words(
    "donkey flunkey hockey jockey lackey latchkey malarkey mickey monkey smokey turkey whiskey"
)
# Also secret as the last word of a name that a person chose for a variable, a header or an option.
_SECRET_LAST_WORDS = _words("basic dsn mnemonic phrase pin pw salt sasl seed")
_ORDINARY_PATS = _words("compat expat spat")
_LOGIN_WORDS = _words("conn connect connection database db dsn login oracle sqlplus userid")
_FOLDER_VARIABLES = {"PWD", "OLDPWD"}  # here, `PWD` means a folder, not a password


def is_secret_name(name: str) -> bool:
    """Whether a value with this name is likely a secret."""
    return name not in _FOLDER_VARIABLES and _is_secret(name[-_MAX_NAME:])


def is_secret_entry_name(name: str) -> bool:
    """Whether a value with this name in a server's entry is likely a secret: a variable, a header or an option.

    More names are secret there than in arguments and results, where `key` and `seed` are ordinary words.
    """
    if is_secret_name(name):
        return True
    words = [word.lower() for word in _WORD.findall(name[-_MAX_NAME:]) if not word.isdigit()]
    if not words or name in _FOLDER_VARIABLES or words[-1] in _ORDINARY_WORDS:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last in ("key", "keys"):
        return before not in _BEFORE_HARMLESS_KEY
    if last.endswith("key"):
        return last.removesuffix("key") not in _BEFORE_HARMLESS_KEY
    return last in _SECRET_LAST_WORDS or (last.endswith("pat") and last not in _ORDINARY_PATS)


def names_a_login(name: str) -> bool:
    """Whether a value with this name may be written as `user/password@host`."""
    return not _LOGIN_WORDS.isdisjoint(word.lower() for word in _WORD.findall(name[-_MAX_NAME:]))


def is_secret_value(name: str, value: Json) -> bool:
    """Whether a value is likely a secret because of its name. Empty values and booleans are not."""
    if name in _FOLDER_VARIABLES or not _is_secret(name[-_MAX_NAME:]):
        return False
    return value not in (None, "", False, True)


def value_name(key: str, entry: Mapping[str, Json]) -> str:
    """The name of a value: its key, or the `name` next to it in `{"name": …, "value": …}`."""
    name = entry.get("name") if key == "value" else None
    return name if isinstance(name, str) else key


@lru_cache(maxsize=4096)
def _is_secret(name: str) -> bool:
    words = [word.lower() for word in _WORD.findall(name) if not word.isdigit()]
    if not words or (len(words) > 1 and words[-1] in _DESCRIPTIONS):
        return False
    with_neighbours = zip(("", *words), words, (*words[1:], ""), strict=False)
    return (
        any(_is_secret_word(before, word, after) for before, word, after in with_neighbours)
        or "".join(words) in _SECRET_WORDS
    )


def _is_secret_word(before: str, word: str, after: str) -> bool:
    """Whether a word makes the name secret. `before` and `after` are its neighbours."""
    match word:
        case "token":
            return before not in _BEFORE_HARMLESS_TOKEN
        case "pass":
            return before not in _BEFORE_HARMLESS_PASS and after not in _AFTER_HARMLESS_PASS
        case "key":
            if after == "id":
                return before == "access"
            return bool(before) and before not in _BEFORE_HARMLESS_KEY
        case "keys" | "tokens":
            return before in _BEFORE_PLURAL
        case _ if word in _SECRET_WORDS or (word, after) in _SECRET_PAIRS:
            return True
        case _:
            return _is_secret_compound(word)


def _is_secret_compound(word: str) -> bool:
    """Whether a compound written as one word makes the name secret: `dbpassword`, `sshpass`, `openaikey`."""
    if word.endswith("key"):
        # Words with fewer than three letters before `key` are ordinary.
        return len(word) > len("xxkey") and not (
            word in _ORDINARY_WORDS or word.removesuffix("key") in _BEFORE_HARMLESS_KEY
        )
    if word.endswith("pass"):
        return word.removesuffix("pass") not in _BEFORE_HARMLESS_PASS
    if word.endswith("token"):
        return word.removesuffix("token") not in _BEFORE_HARMLESS_TOKEN
    return word.endswith(_SECRET_ENDINGS)
