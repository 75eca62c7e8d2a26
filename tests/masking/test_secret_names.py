"""Which names tell that their value is a secret, and which ordinary names do not."""

import pytest

from holdfast.masking.secret_names import is_secret_name

SECRET = """
    Authorization Proxy-Authorization password userPassword DB_PASSWORD DB_PASSWORD_OLD PGPASSWORD MYSQL_PWD adminPwd passphrase
    pass PASS DB_PASS db-pass smtpPass userpass SSHPASS TF_VAR_db_pass --db-pass passKey KEY_PASS
    PAT GITHUB_PAT github_pat
    api_key apiKey X-API-Key x-goog-api-key OPENAI_API_KEY OPENAI_KEY OPENAI_KEY_PROD GEMINI_KEY2 OPENAIKEY API_KEYS
    AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID STRIPE_SECRET_KEY private_key signing_key STORAGE_KEY AUTH_HEADER encryptionKey --api-key
    token TOKEN TOKEN_2 token1 access_token accessToken refresh_token GITHUB_TOKEN SLACK_BOT_TOKEN githubtoken ACCESS_TOKENS
    clientSecret client_secret SECRET_ID jwt dbCreds REDISCLI_AUTH Set-Cookie cookie sas_sig
"""

ORDINARY = """
    PATH path pattern PATIENT patch compat KEYBOARD keyboard KEYMAP MONKEY turkey hotkey key KEY keys keyname key_path
    COMPASS BYPASS bypass PASSENGER passthrough pass_through pass_count pass_on first_pass passive passed
    tokenizer tokenizer_name TOKENIZERS_PARALLELISM tokens max_tokens prompt_tokens token_count token_type progressToken
    nextPageToken NextToken eos_token primary_key foreign_key public_key issue_key projectKey cache_key s3_key sort_keys
    shiftKey author authority XAUTHORITY auth_method TOKEN_URL password_file GOOGLE_CREDENTIALS_FILE SSH_AUTH_SOCK
    SSH_ASKPASS GIT_ASKPASS PWD OLDPWD secretary signal design title session_id
"""


@pytest.mark.promise("AUD-04")
@pytest.mark.parametrize("name", SECRET.split())
def test_name_of_a_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ORDINARY.split())
def test_ordinary_name(name: str) -> None:
    assert not is_secret_name(name)
