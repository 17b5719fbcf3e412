# What .ci/run and .ci/full share: a folder that goes away, an environment of our own, and steps that are timed.
# Source it from the root of the repository.

work="$(mktemp -d)" timings="" closing=""
finish() { # what took how long, also after a failure; pytest's closing line last
  if [[ -n "${besides_job:-}" ]]; then
    cat "$work/besides.log" 2>/dev/null || true
    timings+="$(cat "$work/besides.s" 2>/dev/null)"$'\n'
    echo "steps beside the others that are not named above were not finished"
  fi
  printf '\n%s%5d s  altogether\n%s\n' "$timings" "$SECONDS" "$closing"
  if [[ -n "$(jobs -pr)" ]]; then kill $(jobs -pr) && wait; fi
  rm -rf "$work"
}
trap finish EXIT
exec </dev/null
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$work/pycache" # compiled once, and not into the checkout
export PIP_DISABLE_PIP_VERSION_CHECK=1 HF_HUB_OFFLINE=1 COVERAGE_FILE="$work/coverage"
export PIP_NO_COMPILE=0 # pip's way to say no: of 20,000 modules only those are compiled that a test imports
export CI="${CI:-true}" # hypothesis then draws the same examples each time
export MYPY_CACHE_DIR="$work/mypy" RUFF_CACHE_DIR="$work/ruff"
python="${PYTHON:-python3}"
venv="$work/venv"

step() { # step NAME COMMAND...
  local name="$1" began=$SECONDS
  shift
  if [[ -e "$work/besides.failed" ]]; then joined; fi
  printf '\n== %s\n' "$name"
  "$@"
  timings+="$(printf '%5d s  %s' "$((SECONDS - began))" "$name")"$'\n'
}

besides() { # besides FUNCTION: begin the steps of a function on the other core; `joined` waits for them and prints what they said
  "$1" &
  besides_job=$!
}

beside() { # beside NAME COMMAND...: one of these steps
  local name="$1" began=$SECONDS code=0
  shift
  ("$@") >"$work/beside.log" 2>&1 & # before `||` no command would end it
  wait $! || code=$?
  { printf '\n== %s, beside the others\n' "$name" && cat "$work/beside.log"; } >>"$work/besides.log"
  printf '%5d s  %s, beside the others\n' "$((SECONDS - began))" "$name" >>"$work/besides.s"
  if ((code)); then touch "$work/besides.failed" && return "$code"; fi
}

joined() {
  local code=0
  wait "$besides_job" || code=$?
  besides_job=""
  cat "$work/besides.log"
  timings+="$(<"$work/besides.s")"$'\n'
  return "$code"
}

target() { make --no-print-directory PYTHON="$python" VENV="$venv" "$@"; }

passed=0
tests() { # tests TARGET PYTEST_ARGS: a skipped test is a test that did not pass
  local log="$work/pytest.log" code=0
  target "$1" CHROMIUM= PYTEST_ARGS="-p no:cacheprovider $2" 2>&1 | tee "$log" || code=$?
  closing="$(grep -E '^=+ .*(passed|failed|error|no tests).* =+$' "$log" | tail -n 1 || true)"
  if ((code)); then return "$code"; fi
  if grep -qE '[0-9]+ (skipped|xfailed|xpassed)' <<<"$closing"; then
    echo "some tests did not run: $closing" >&2
    return 1
  fi
  passed=$((passed + $(grep -oE '[0-9]+ passed' <<<"$closing" | cut -d' ' -f1)))
  closing="===== $passed passed in ${SECONDS}s ====="
}

build_wheels() { # all distributions into $work/dist, built twice, and the main one into the environment $work/clean
  "$python" -m venv "$work/clean"
  "$python" -m venv "$work/build" # what builds them, once for all
  "$work/build/bin/python" -m pip install --quiet 'hatchling>=1.24'
  "$work/build/bin/python" scripts/dist.py "$work/dist"
  "$work/clean/bin/python" -m pip install --quiet "$work"/dist/suffice-[0-9]*.whl
}
