"""Environment variables that workspace files, projects and clients may not set: Holdfast's own, and risky ones.

A risky variable changes which code a program runs, where it looks for programs and settings, or which certificates it
trusts. Entries from `server.TRUSTED_SOURCES` may set them. The client of a direct session may set all but those of
`is_loader` groups: an editor is its user's own program. A project may set two of them if its approval covers what they name
(`resolve.approved_variables`). Leading underscores of a name are ignored: interpreters
have undocumented variables such as `_PYTHON_SYSCONFIGDATA_NAME`.

No such list is complete. It stops the known ways to make an approved program run other code; limiting what a server's
own code can do is the job of the sandbox.
"""

from dataclasses import dataclass

from holdfast.model.context import ENV_PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableGroup:
    """Variables with the same effect: by prefix, by name, and the exceptions that are harmless."""

    reason: str
    prefixes: str = ""
    names: str = ""
    harmless: str = ""
    is_loader: bool = False
    """Whether they can put code into any program, including those that Holdfast runs to start a server."""


RISKY_VARIABLES = (
    VariableGroup(
        reason="it makes the dynamic loader put other code into the program",
        prefixes="LD_ DYLD_ __XPC_ MALLOC LTTNG_ OMPI_MCA_ PMIX_MCA_",
        names="GLIBC_TUNABLES GCONV_PATH GETCONF_DIR LOCPATH NLSPATH TZDIR HOSTALIASES LOCALDOMAIN NIS_PATH"
        " RESOLV_HOST_CONF RES_OPTIONS LIBPATH SHLIB_PATH ASAN_OPTIONS LSAN_OPTIONS MSAN_OPTIONS TSAN_OPTIONS"
        " UBSAN_OPTIONS TERMCAP TERMINFO TERMINFO_DIRS",
        is_loader=True,
    ),
    VariableGroup(
        reason="it makes a library load plug-ins from another folder",
        prefixes="GIO_ GST_PLUGIN_ GDK_PIXBUF_ OCL_ICD_ ALSA_CONFIG_ P11_KIT_ __EGL_ HDF5_PLUGIN_ OPENCV_VIDEOIO_PLUGIN_",
        names="GTK_MODULES GTK3_MODULES GTK_PATH QT_PLUGIN_PATH QT_QPA_PLATFORM_PLUGIN_PATH QML_IMPORT_PATH"
        " QML2_IMPORT_PATH LIBGL_DRIVERS_PATH LIBVA_DRIVERS_PATH VK_LAYER_PATH VK_ADD_LAYER_PATH VK_INSTANCE_LAYERS"
        " VK_ICD_FILENAMES VK_DRIVER_FILES VK_ADD_DRIVER_FILES SASL_PATH KRB5_CONFIG MAGICK_CODER_MODULE_PATH"
        " MAGICK_CONFIGURE_PATH ODBCINI ODBCSYSINI GDAL_DRIVER_PATH PKCS11_MODULE_PATH XTABLES_LIBDIR CUDA_INJECTION64_PATH"
        " HSA_TOOLS_LIB NCCL_NET_PLUGIN UCX_MODULE_DIR VDPAU_DRIVER_PATH GBM_BACKENDS_PATH SPA_PLUGIN_DIR PIPEWIRE_MODULE_DIR"
        " LADSPA_PATH LV2_PATH DSSI_PATH VST_PATH FREI0R_PATH LIBMYSQL_PLUGINS LIBMYSQL_PLUGIN_DIR SDL_DYNAMIC_API SDL3_DYNAMIC_API"
        " OGR_DRIVER_PATH GDAL_PYTHON_DRIVER_PATH LIBVIRT_DRIVER_DIR LIBDECOR_PLUGIN_DIR MAGICK_HOME MCA_BASE_COMPONENT_PATH MCA_MCA_COMPONENT_PATH",
        is_loader=True,
    ),
    VariableGroup(
        reason="it decides which programs are found",
        names="PATH PATHEXT SHELL COMSPEC SYSTEMROOT WINDIR PSMODULEPATH",
    ),
    VariableGroup(
        reason="programs load code and settings from that folder",
        prefixes="XDG_",
        names="HOME USERPROFILE HOMEDRIVE HOMEPATH APPDATA LOCALAPPDATA PROGRAMDATA",
    ),
    VariableGroup(
        reason="it makes a shell run or read something else",
        prefixes="BASH_ ZSH_",
        names="ENV SHELLOPTS BASHOPTS IFS PS0 PS1 PS2 PS4 PROMPT_COMMAND CDPATH GLOBIGNORE ZDOTDIR FPATH INPUTRC",
    ),
    VariableGroup(
        reason="it makes Node.js load other code",
        prefixes="NODE_ ELECTRON_ TS_NODE_ TSX_ BUN_ DENO_ BABEL_ NAPI_RS_ JITI_ V8_COMPILE_CACHE_",
        names="ESBUILD_BINARY_PATH SWC_BINARY_PATH PRISMA_QUERY_ENGINE_LIBRARY PRISMA_QUERY_ENGINE_BINARY"
        " PRISMA_SCHEMA_ENGINE_BINARY",
        harmless="NODE_ENV NODE_NO_WARNINGS NODE_DISABLE_COLORS NODE_AUTH_TOKEN BABEL_ENV DENO_DEPLOY_TOKEN",
    ),
    VariableGroup(
        reason="it makes Python load other code",
        prefixes="PYTHON PYPY JYTHON PYTEST_ CONDA_ PYDEVD_ DEBUGPY_ COVERAGE_ SETUPTOOLS_ PEX_ SHIV_ PYI_",
        names="__PYVENV_LAUNCHER__ VIRTUAL_ENV IPYTHONDIR JUPYTER_PATH JUPYTER_CONFIG_DIR JUPYTER_CONFIG_PATH"
        " JUPYTER_DATA_DIR DJANGO_SETTINGS_MODULE SCRAPY_SETTINGS_MODULE CELERY_CONFIG_MODULE FLASK_APP"
        " GUNICORN_CMD_ARGS UVICORN_APP UVICORN_APP_DIR UVICORN_ENV_FILE UVICORN_LOG_CONFIG MEIPASS2 NUMBA_CACHE_DIR"
        " TRITON_CACHE_DIR TORCHINDUCTOR_CACHE_DIR TORCH_EXTENSIONS_DIR HF_MODULES_CACHE MPLCONFIGDIR MATPLOTLIBRC CLOUDSDK_PYTHON CLOUDSDK_PYTHON_ARGS"
        " NUMBA_CACHE_LOCATOR_CLASSES PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON SPARK_HOME",
        harmless="PYTHONUNBUFFERED PYTHONIOENCODING PYTHONUTF8 PYTHONDONTWRITEBYTECODE PYTHONHASHSEED"
        " PYTHONFAULTHANDLER PYTHONNODEBUGRANGES PYTHONDEVMODE PYTHONASYNCIODEBUG PYTHON_COLORS",
    ),
    VariableGroup(
        reason="it makes Java load other code",
        prefixes="JAVA_ _JAVA_ JDK_ MAVEN_ GRADLE_ KOTLIN_ JBANG_",
        names="CLASSPATH JRE_HOME CATALINA_OPTS SBT_OPTS",
    ),
    VariableGroup(
        reason="it makes .NET load other code",
        prefixes="DOTNET_ COMPLUS_ CORECLR_ COR_ NUGET_",
        names="ASPNETCORE_HOSTINGSTARTUPASSEMBLIES MONO_PATH MONO_CONFIG MONO_CFG_DIR MONO_ENV_OPTIONS MONO_GAC_PREFIX",
        harmless="DOTNET_ENVIRONMENT DOTNET_NOLOGO DOTNET_CLI_TELEMETRY_OPTOUT NUGET_API_KEY",
    ),
    VariableGroup(
        reason="it makes an interpreter load other code",
        prefixes="PERL RUBY BUNDLE_ BUNDLER_ RBENV_ LUA_ JULIA_ ERL_ ELIXIR_ GUILE_ COMPOSER_ SBCL_ CLJ_ LEIN_"
        " GROOVY_ SCALA_ OCTAVE_",
        names="PHPRC PHP_INI_SCAN_DIR JRUBY_OPTS MIX_EXS MIX_HOME MIX_ARCHIVES OCAMLPATH GEM_HOME GEM_PATH GEM_SPEC_CACHE R_HOME R_LIBS R_LIBS_USER R_LIBS_SITE R_PROFILE"
        " R_PROFILE_USER R_ENVIRON R_ENVIRON_USER R_DEFAULT_PACKAGES TCLLIBPATH TCL_LIBRARY TK_LIBRARY OCAMLRUNPARAM"
        " CAML_LD_LIBRARY_PATH GHCRTS IRBRC PLTADDONDIR PLTCOLLECTS PLTUSERHOME AWKPATH AWKLIBPATH MATLABPATH EMACSLOADPATH VIMINIT EXINIT",
    ),
    VariableGroup(
        reason="it decides where packages are taken from, or which version runs",
        prefixes="NPM_CONFIG_ PNPM_ YARN_ COREPACK_ VOLTA_ NVM_ FNM_ UV_ PIP_ PIPX_ PIPENV_ POETRY_ PDM_ HATCH_ RYE_"
        " PYENV_ CARGO_ RUSTUP_ RUSTC MISE_ ASDF_ NIX_ DIRENV_",
        names="NPM_EXECPATH NPM_NODE_EXECPATH RUSTFLAGS RUSTDOCFLAGS GOFLAGS GOPATH GOROOT GOBIN GOENV GOPROXY"
        " GOSUMDB GONOSUMDB GONOSUMCHECK GONOPROXY GOPRIVATE GOINSECURE GOTOOLCHAIN GOTOOLDIR GODEBUG GOCACHE"
        " GOMODCACHE GOAUTH GOVCS GOWORK CC CXX MAKEFLAGS MAKEFILES GCC_EXEC_PREFIX COMPILER_PATH CCACHE_PREFIX CCACHE_COMPILER"
        " CMAKE_TOOLCHAIN_FILE CMAKE_PROJECT_INCLUDE PKG_CONFIG",
    ),
    VariableGroup(
        reason="it names a program that other programs start, or a server that starts programs",
        prefixes="GIT_ SSH_ASKPASS SUDO_ CONTAINERS_ DOCKER_CLI_ FZF_DEFAULT_",
        names="EDITOR VISUAL PAGER MANPAGER SYSTEMD_PAGER GH_PAGER GLAB_PAGER BAT_PAGER DELTA_PAGER BROWSER LESSOPEN LESSCLOSE"
        " LESSKEY LESSKEYIN RIPGREP_CONFIG_PATH TF_CLI_CONFIG_FILE ANSIBLE_CONFIG ANSIBLE_LIBRARY ANSIBLE_MODULE_UTILS ANSIBLE_COLLECTIONS_PATH"
        " ANSIBLE_ROLES_PATH ANSIBLE_ACTION_PLUGINS ANSIBLE_CALLBACK_PLUGINS ANSIBLE_CONNECTION_PLUGINS ANSIBLE_FILTER_PLUGINS"
        " ANSIBLE_INVENTORY_PLUGINS ANSIBLE_LOOKUP_PLUGINS ANSIBLE_STRATEGY_PLUGINS DOCKER_HOST DOCKER_CONFIG DOCKER_CONTEXT"
        " DOCKER_CERT_PATH DOCKER_TLS_VERIFY CONTAINER_HOST HG HGRCPATH HGEDITOR HGMERGE RSYNC_RSH"
        " RSYNC_CONNECT_PROG SVN_SSH SVN_EDITOR CVS_RSH WGETRC CURL_HOME",
        harmless="GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_AUTHOR_DATE GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL"
        " GIT_COMMITTER_DATE GIT_TERMINAL_PROMPT GIT_TOKEN",
    ),
    VariableGroup(
        reason="it changes which certificates are trusted, or who can decrypt connections",
        prefixes="OPENSSL_ SSL_CERT_ GNUTLS_",
        names="SSL_DIR SSLKEYLOGFILE CURL_CA_BUNDLE REQUESTS_CA_BUNDLE NODE_TLS_REJECT_UNAUTHORIZED NODE_EXTRA_CA_CERTS"
        " PYTHONHTTPSVERIFY GIT_SSL_NO_VERIFY GIT_SSL_CAINFO GIT_SSL_CAPATH DENO_CERT DENO_TLS_CA_STORE",
    ),
)
"""Compared case-insensitively, because Windows and npm ignore case."""


def is_holdfast_variable(name: str) -> bool:
    """Whether a variable is one of `HOLDFAST_*`: the session context and Holdfast's settings."""
    return name.upper().startswith(_HOLDFAST_PREFIX)


def risky_variable_reason(name: str) -> str | None:
    """Why a variable is risky; None if it is not known to be risky."""
    upper = name.upper()
    if upper in _HARMLESS:
        return None
    return _known_reason(upper) or (_known_reason(upper.lstrip("_")) if upper.startswith("_") else None)


def project_variable_reason(name: str) -> str | None:
    """Why a project's entry may not set this variable, unless its approval covers what the value names; None if it may."""
    return risky_variable_reason(name) or (_TEMPORARY_REASON if name.upper() in _TEMPORARY_NAMES else None)


def loader_variable_reason(name: str) -> str | None:
    """Why a variable of an `is_loader` group is risky; None for all other variables."""
    reason = risky_variable_reason(name)
    return reason if reason in _LOADER_REASONS else None


def reserved_variable_reason(name: str) -> str | None:
    """Why a workspace file or an alias may not set this variable; None if it may."""
    if is_holdfast_variable(name):
        return "only the host may set it"
    return risky_variable_reason(name)


def _known_reason(upper: str) -> str | None:
    if reason := _BY_NAME.get(upper):
        return reason
    if not upper.startswith(_PREFIXES):
        return None
    return next(reason for prefix, reason in _BY_PREFIX.items() if upper.startswith(prefix))


_HOLDFAST_PREFIX = f"{ENV_PREFIX}_"
# Editors and users may say where temporary files are kept. A project may not: it could name a folder of its own, with files that
# programs trust.
_TEMPORARY_NAMES = frozenset(("TMPDIR", "TMP", "TEMP", "TEMPDIR"))
_TEMPORARY_REASON = "programs keep compiled code in that folder, and run it instead of its source"
_HARMLESS = frozenset(name for group in RISKY_VARIABLES for name in group.harmless.split())
_BY_NAME = {name: group.reason for group in RISKY_VARIABLES for name in group.names.split()}
_BY_PREFIX = {prefix: group.reason for group in RISKY_VARIABLES for prefix in group.prefixes.split()}
_PREFIXES = tuple(_BY_PREFIX)
_LOADER_REASONS = frozenset(group.reason for group in RISKY_VARIABLES if group.is_loader)
