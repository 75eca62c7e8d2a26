import pytest

from holdfast.model.reserved_variables import (
    RISKY_VARIABLES,
    is_holdfast_variable,
    reserved_variable_reason,
    risky_variable_reason,
)

DANGEROUS = """
    LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT DYLD_INSERT_LIBRARIES DYLD_LIBRARY_PATH GLIBC_TUNABLES GCONV_PATH LOCPATH NLSPATH
    MALLOC_TRACE MALLOC_CONF MallocLogFile PATH Path PATHEXT HOME USERPROFILE XDG_CONFIG_HOME SHELL BASH_ENV ENV SHELLOPTS IFS PS4
    BASH_FUNC_ls%% ZDOTDIR NODE_OPTIONS NODE_PATH NODE_EXTRA_CA_CERTS NODE_TLS_REJECT_UNAUTHORIZED NODE_V8_COVERAGE
    NODE_COMPILE_CACHE ELECTRON_RUN_AS_NODE TS_NODE_COMPILER BUN_OPTIONS DENO_DIR PYTHONPATH PYTHONHOME PYTHONSTARTUP
    PYTHONINSPECT PYTHONWARNINGS PYTHONBREAKPOINT PYTHONUSERBASE PYTHONPYCACHEPREFIX PYTHONEXECUTABLE PYTHONPLATLIBDIR
    VIRTUAL_ENV PERL5OPT PERL5LIB PERL5DB RUBYOPT RUBYLIB GEM_PATH BUNDLE_GEMFILE JAVA_TOOL_OPTIONS _JAVA_OPTIONS
    JDK_JAVA_OPTIONS CLASSPATH DOTNET_STARTUP_HOOKS CORECLR_PROFILER_PATH COR_PROFILER LUA_INIT PHPRC R_PROFILE_USER
    ERL_FLAGS JULIA_LOAD_PATH GIT_SSH_COMMAND GIT_EXEC_PATH GIT_CONFIG_GLOBAL GIT_EXTERNAL_DIFF GIT_PAGER SSH_ASKPASS EDITOR
    PAGER BROWSER LESSOPEN OPENSSL_CONF OPENSSL_MODULES OPENSSL_ENGINES SSL_CERT_FILE SSLKEYLOGFILE CURL_CA_BUNDLE
    npm_config_registry NPM_CONFIG_NODE_OPTIONS npm_config_script_shell UV_INDEX_URL UV_PYTHON PIP_INDEX_URL PIP_CONFIG_FILE
    POETRY_HOME CARGO_HOME GOFLAGS GOPROXY DOCKER_HOST GTK_MODULES QT_PLUGIN_PATH VK_LAYER_PATH KRB5_CONFIG
    _PYTHON_SYSCONFIGDATA_NAME _PYTHON_PROJECT_BASE _PYTHON_HOST_PLATFORM __PYVENV_LAUNCHER__ __NODE_OPTIONS _LD_PRELOAD
    COVERAGE_PROCESS_START PYDEVD_LOAD_VALUES_ASYNC DJANGO_SETTINGS_MODULE GUNICORN_CMD_ARGS NAPI_RS_NATIVE_LIBRARY_PATH
    ESBUILD_BINARY_PATH CUDA_INJECTION64_PATH BUNDLER_SETUP PLTADDONDIR IRBRC AWKLIBPATH
    PEX_MODULE SHIV_ROOT _PYI_APPLICATION_HOME_DIR _MEIPASS2 UVICORN_APP_DIR NUMBA_CACHE_DIR JITI_CACHE V8_COMPILE_CACHE_CACHE_DIR
"""
HARMLESS = """
    GITHUB_TOKEN API_KEY OPENAI_API_KEY DATABASE_URL DEBUG LOG_LEVEL PORT TZ LANG LC_ALL NODE_ENV PYTHONUNBUFFERED PYTHONUTF8
    PYTHONIOENCODING GIT_AUTHOR_NAME HTTP_PROXY HTTPS_PROXY NO_PROXY TMPDIR GOOGLE_API_KEY VK_TOKEN JUPYTER_TOKEN R_API_KEY
    HGTV LDAP_URL PATH_TO_DATA ENVIRONMENT PARACHUTE_VAULT_PATH HOMEPAGE RUST_LOG AWS_PROFILE KUBECONFIG HOLDFASTER
"""


@pytest.mark.promise("RES-13")
@pytest.mark.parametrize("name", DANGEROUS.split())
def test_loader_variable_has_a_reason_in_any_case(name: str) -> None:
    for spelling in (name, name.lower(), name.upper()):
        assert risky_variable_reason(spelling)


@pytest.mark.parametrize("name", HARMLESS.split())
def test_ordinary_variable_is_not_reserved(name: str) -> None:
    assert reserved_variable_reason(name) is None


@pytest.mark.promise("RES-13")
@pytest.mark.parametrize(
    "name",
    [
        "HOLDFAST_SESSION_ID",
        "HOLDFAST_TRUST_LEVEL",
        "holdfast_user_id",
        "HOLDFAST_SHARED",
        "HOLDFAST_DATA_DIR",
        "HOLDFAST_X",
    ],
)
def test_holdfast_variables_are_reserved(name: str) -> None:
    assert (is_holdfast_variable(name), reserved_variable_reason(name)) == (True, "only the host may set it")


def test_groups_do_not_overlap() -> None:
    names = [name for group in RISKY_VARIABLES for name in group.names.split()]
    prefixes = [prefix for group in RISKY_VARIABLES for prefix in group.prefixes.split()]

    assert len(names) == len(set(names))
    assert len(prefixes) == len(set(prefixes))
    for group in RISKY_VARIABLES:
        covered = tuple(group.prefixes.split())
        assert [name for name in group.harmless.split() if not name.startswith(covered)] == []
        assert [name for name in group.names.split() if covered and name.startswith(covered)] == []
        assert not group.reason.endswith(".")
        assert group.reason[0].islower()
