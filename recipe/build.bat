@rem Builds the files of one output into %PREFIX%; FA_STAGE and the other settings come from recipe.yaml.
if not defined MAX_JOBS set "MAX_JOBS=%CPU_COUNT%"
set "CMAKE_BUILD_PARALLEL_LEVEL=%MAX_JOBS%"
if not defined FA_PROFILE set "FA_PROFILE=ci"
python scripts\build.py --stage "%FA_STAGE%" --into "%PREFIX%" --profile "%FA_PROFILE%"
if errorlevel 1 exit 1
