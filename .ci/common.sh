# What the gate, `.ci/docs` and `.ci/nightly` share. Sourced, not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Two test workers on few cores: one thread each, or they fight.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export XLA_FLAGS=--xla_cpu_multi_thread_eigen=false
export PIP_DISABLE_PIP_VERSION_CHECK=1
export PYRIGHT_PYTHON_IGNORE_WARNINGS=1  # or it asks the network for a newer version
# Neither the source tree nor an earlier run may answer for the wheel.
unset PYTHONPATH JAX_COMPILATION_CACHE_DIR
# The workers share what they compile, in a folder that is new.
export PYTEST_ADDOPTS="-n 2 --dist loadfile -o cache_dir=$work/pytest"

heading() { printf '\n[%4d s] %s\n' "$SECONDS" "$*"; }

# Runs each candidate, since a version manager's shim may exist and yet not work.
find_python() {
  local version=$1 candidate
  for candidate in "python$version" "$(pyenv root 2>/dev/null)/versions/$version".*/bin/python; do
    "$candidate" - "$version" 2>/dev/null <<'PY' && return
import ensurepip, sys, venv
if "%d.%d" % sys.version_info[:2] != sys.argv[1]:
    sys.exit(1)
print(sys.executable)
PY
  done
  return 1
}

# Archives whose SHA-256 is in the file, and no others. `.ci/lock.py` writes these files.
install() {
  "$1/bin/python" -m pip install -qq --no-deps --require-hashes -r ".ci/requirements-$2.txt"
}

install_wheel() {
  "$1/bin/python" -m pip install -qq --no-deps --no-index "$wheel"
  "$1/bin/python" -m pip check
}

fresh() {
  "$1" -m venv "$2"
  install "$2" pip
}

# Builds the wheel in the environment, which is not isolated so that the backend is the
# locked one too.
build_wheel() {
  heading "build"
  install "$1" build
  "$1/bin/python" -m build --no-isolation --outdir "$work/dist" >"$work/build.log" 2>&1 ||
    { cat "$work/build.log"; exit 1; }
  wheel=$(echo "$work"/dist/*.whl)
  echo "${wheel##*/}"
}

# Pages compile similar programs: share them within this run, and compile in half the time
# with the jax of the main corner, as in tests/conftest.py.
compile_quickly() {
  export JAX_COMPILATION_CACHE_DIR=$work/compiled JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.3
  XLA_FLAGS+=" --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
  XLA_FLAGS+=" --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
}

main=$(find_python 3.11) || main=$(command -v python3)
