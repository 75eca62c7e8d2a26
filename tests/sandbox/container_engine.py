"""A small container engine for tests, called like podman. It runs programs with bubblewrap, in the machine's own files.

It implements the commands and options that Holdfast uses. Each container has a layer of its own: the folder `/srv`,
unless it was created with `--read-only`. `tests/sandbox/test_podman.py` has the real engine.
"""

from pathlib import Path

# A container is a folder: `command` (how bubblewrap runs it), `layer`, `labels`, `image` and, while it runs, `pid`.
_ENGINE = r"""#!/bin/sh
cd @STATE@ || exit 125
quote() { printf "'%s' " "$(printf %s "$1" | sed "s/'/'\\\\''/g")"; }
image() { cat image 2> /dev/null || echo image-1; }
execute() { exec 5<&0; sh "$1/command" <&5 5<&- & echo $! > "$1/pid"; wait $!; code=$?; rm -f "$1/pid"; return $code; }
end() { [ -f "$1/pid" ] && kill -9 "$(cat "$1/pid")"; :; }
has() { for each; do grep -q -e "^$each$" -e "^$each=" "$name/labels" || return 1; done; }
action=$1; shift
case $action in
image) image;;
container)
  eval name=\${$#}
  [ -d "$name" ] || { echo no such container >&2; exit 125; }
  echo "$(cat "$name/image")" "$([ -f "$name/pid" ] && echo true || echo false)" "$(sed -n s/dev.holdfast.config=//p "$name/labels")";;
ps)
  labels= ids=
  while [ $# -gt 0 ]; do [ "$1" = --filter ] && labels="$labels ${2#label=}"; shift; done
  for name in holdfast-*; do [ -d "$name" ] && has $labels && echo "$name" "$(grep dev.holdfast.host= "$name/labels")"; done; :;;
start) eval name=\${$#}; execute "$name";;
stop) end "$3";;
kill) for name; do end "$name"; done;;
rm) shift; for name; do end "$name"; rm -rf "$name"; done;;
run)
  mounts= variables= folder=/ layer=yes remove= labels= entry=
  while :; do case $1 in
    --rm) remove=yes; shift;;
    --read-only) layer=; shift;;
    --interactive|--ulimit=*) shift;;
    --name) name=$2; shift 2;;
    --label) labels="$labels$2
"; shift 2;;
    --workdir) folder=$2; shift 2;;
    --entrypoint) entry=$2; shift 2;;
    --env-file) while IFS= read -r line; do variables="$variables--setenv $(quote "${line%%=*}")$(quote "${line#*=}")"; done < "$2"; shift 2;;
    --mount)
      path=${2##*target=}; bind=--bind
      case $path in *,readonly) bind=--ro-bind; path=${path%,readonly};; esac
      mounts="$mounts $bind $(quote "$path")$(quote "$path")"; shift 2;;
    --*) shift 2;;
    *) break;;
  esac; done
  [ -d "$name" ] && { echo that name is already in use >&2; exit 125; }
  mkdir -p "$name/layer"; chmod 777 "$name/layer"; image > "$name/image"; printf %s "$labels" > "$name/labels"; shift
  [ -n "$layer" ] && mounts="--bind '@STATE@/$name/layer' /srv $mounts"
  { printf 'exec bwrap --ro-bind / / --dev /dev --unshare-pid --die-with-parent --clearenv '
    printf '%s' "$mounts$variables--chdir $(quote "$folder")$(quote "$entry")"; for word; do quote "$word"; done; } > "$name/command"
  execute "$name"; code=$?
  [ -n "$remove" ] && rm -rf "$name"
  exit $code;;
*) exit 125;;
esac
"""


def make_engine(folder: Path) -> Path:
    """Write the engine into this folder as `podman`. Return the folder with its containers."""
    state = folder / "containers"
    state.mkdir(parents=True)
    program = folder / "podman"
    program.write_text(_ENGINE.replace("@STATE@", str(state)), encoding="utf-8")
    program.chmod(0o755)
    return state
