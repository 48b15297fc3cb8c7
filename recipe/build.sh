#!/bin/sh
# Builds the files of one output into $PREFIX; FA_STAGE and the other settings come from recipe.yaml.
set -eu
unset LD_RUN_PATH # else the linker would write the build's own path into libraries
export MAX_JOBS="${MAX_JOBS:-$CPU_COUNT}"
export CMAKE_BUILD_PARALLEL_LEVEL="$MAX_JOBS"
exec python scripts/build.py --stage "$FA_STAGE" --into "$PREFIX" --profile "${FA_PROFILE:-ci}"
