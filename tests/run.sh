#!/usr/bin/env bash
# Lint, types, and the tests that need neither hosts nor pods; --all: all tests of CI that can run here; --release: variants of
# them. Arguments go to pytest.
#
# The environment is made when missing, outside of the checkout: ${XDG_CACHE_HOME:-~/.cache}/jobctl-tests.
# What needs a tool that is not here is skipped with the reason, unless JOBCTL_TOOLS=required, JOBCTL_PYTHONS=required,
# JOBCTL_FRAMEWORKS=required or JOBCTL_FLEET=required says that it must not be. PaddlePaddle and MindSpore have environments of
# their own there, made if they are required, or by `python -m tests.tools.frameworks`.
set -euo pipefail
cd "$(dirname "$0")/.."

install_packages() { # Debian packages, where that is possible
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  else
    echo "not installed, and not root: ${missing[*]} (some tests will be skipped)" >&2
  fi
}

command -v dpkg-query >/dev/null && install_packages git shellcheck dash etcd-server spin gcc libc6-dev
if [ "${JOBCTL_FLEET:-}" = required ]; then
  install_packages docker.io docker-registry openssh-server openssh-client iproute2 iputils-ping e2fsprogs mmdebstrap faketime tar
  install_packages slurmctld slurmd slurm-client munge podman runc uidmap rootlesskit slirp4netns
fi
if [ -n "${JOBCTL_KUBE:-}" ]; then install_packages curl openssl; fi
# A browser and Prometheus are large, and one test needs each: where they are missing, that is skipped.
if [ "${JOBCTL_TOOLS:-}" = required ]; then
  install_packages chromium prometheus
  case " $* " in *" --release "*) install_packages emacs-nox vim ;; esac
fi
# The system's Python before that of PATH: one that a version manager has compiled takes twice as long for the same.
is_new() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
if is_new /usr/bin/python3 && [ "$(id -u)" = 0 ]; then install_packages python3-venv; fi
python3=
for found in ${JOBCTL_TEST_PYTHON:-/usr/bin/python3 python3}; do
  if is_new "$found" && "$found" -c 'import ensurepip, venv' 2>/dev/null; then python3=$found; break; fi
done
[ -n "$python3" ] || { echo "Python 3.11 or later is needed, with its package venv" >&2; exit 2; }

cache="${XDG_CACHE_HOME:-$HOME/.cache}/jobctl-tests"
# Named after the Python, as those of the frameworks are (tests/tools/frameworks.py).
venv="$cache/venv-$("$python3" -c 'import sys; print("%d.%d" % sys.version_info[:2] + sys.base_prefix.replace("/", "-"))')"
mkdir -p "$cache"
exec 9>"$cache/install.lock"
flock 9 # two runs on one machine share the environment, and would install over each other
[ -x "$venv/bin/python" ] || "$python3" -m venv "$venv"
python="$venv/bin/python"

# Built from a copy of what git knows, so that nothing stale takes part; installed as users install it.
source="$(mktemp -d)"
trap 'rm -rf "$source"' EXIT
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
  if [ -f "$file" ]; then printf '%s\0' "$file"; fi
done | xargs -0 cp --parents -t "$source"
pip=("$python" -m pip install -q --disable-pip-version-check)
# Importing PyTorch costs a quarter less so.
for packages in "$venv"/lib/python*/site-packages; do cp tests/tools/collect_rarely.py "$packages/sitecustomize.py"; done
# Packages: again when others are asked for, and after a week, as there may be newer ones.
asked="$venv/asked-for.toml"
if ! cmp -s "$source/pyproject.toml" "$asked" || [ -z "$(find "$asked" -mtime -7)" ]; then
  rm -f "$asked"
  "${pip[@]}" --upgrade "${source}[examples,dev]"
  cp "$source/pyproject.toml" "$asked"
fi
# The project: again when any of its files differs from what was installed last, by whomever.
sums="$venv/project.sha256"
(cd "$source" && find cli jobspec templates LICENSE README.md pyproject.toml -type f -print0 | sort -z | xargs -0 sha256sum) \
  >"$sums.new"
record="$(compgen -G "$venv/lib/python*/site-packages/jobctl-*.dist-info/RECORD" || true)"
if ! cmp -s "$sums.new" "$sums" || [ ! -f "$record" ] || [ "$record" -nt "$sums" ]; then
  "${pip[@]}" --no-build-isolation --force-reinstall --no-deps "$source"
  mv "$sums.new" "$sums"
  touch "$sums"
fi

# The launcher is tested on the oldest and on a new Python too, in whatever image a user has; pyenv's are found as well.
if [ "${JOBCTL_PYTHONS:-}" = required ]; then
  for version in 3.8 3.13; do
    compgen -G "$HOME/.pyenv/versions/$version.*/bin/python$version" >/dev/null && continue
    "python$version" -c '' 2>/dev/null && continue
    "$python" -m pip install -q --disable-pip-version-check uv && "$python" -m uv python install -q "$version"
  done
fi

exec 9>&-

# With bytecode, pytest prepares each test file once, and not in each worker of each run. It prepares what is new here while
# the types are checked, as both need one core.
unset PYTHONPATH PYTHONDONTWRITEBYTECODE
"$python" -m pytest --collect-only --all -qq >/dev/null 2>&1 &
"$python" -m ruff check .
"$python" -m ruff format --check .
# From elsewhere, so that what is installed is checked and tested, not what lies here.
types=("$python" -m mypy --strict --cache-dir "$cache/mypy" --config-file pyproject.toml)
(cd "$source" && rm -rf build && "${types[@]}" -p jobctl && "${types[@]}" --explicit-package-bases benchmarks tests/tools tests/fleet)
wait
rm -rf "$source"  # `exec` runs no trap
# What takes long comes first (tests/conftest.py), so that no worker is left alone with it at the end.
# More workers than two cores: tests wait for most of their time.
# All worlds and seeds belong to --all; a part that somebody names is run as a whole, too.
if [ $# = 0 ]; then export JOBCTL_TEST_WORLDS="${JOBCTL_TEST_WORLDS:-32}"; fi
exec "$python" -m pytest -n "${JOBCTL_TEST_WORKERS:-8}" --dist loadfile --no-loadscope-reorder "$@"
