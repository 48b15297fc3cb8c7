@echo off
rem Runs a task of pixi.toml on Windows: `pixiw run TASK [ARGUMENTS]`. With pixi where pixi is installed; elsewhere in .pixiw\,
rem a virtual environment made from the hash-locked requirements\. PIXIW_PYTHON chooses its Python (3.11 or later).
setlocal
set "ROOT=%~dp0"
set "VENV=%ROOT%.pixiw"
if not "%~1"=="run" (
    echo usage: pixiw run TASK [ARGUMENTS] 1>&2
    exit /b 2
)
if not defined PIXIW_NO_PIXI (
    where pixi >nul 2>nul
    if not errorlevel 1 goto with_pixi
)
for %%F in ("%ROOT%requirements\dev.txt") do set "STAMP=%%~tF %%~zF %PIXIW_PYTHON%"
set "MADE_FROM="
if exist "%VENV%\made-from" set /p MADE_FROM=<"%VENV%\made-from"
if "%MADE_FROM%"=="%STAMP%" goto run_task
if not defined PIXIW_PYTHON set "PIXIW_PYTHON=python"
"%PIXIW_PYTHON%" -c "import sys; sys.exit(sys.version_info < (3, 11))" || (
    echo pixiw: no Python 3.11 or later found; install one or set PIXIW_PYTHON 1>&2
    exit /b 1
)
"%PIXIW_PYTHON%" -m venv "%VENV%" || exit /b 1
"%VENV%\Scripts\python" -m pip --disable-pip-version-check install --quiet --require-hashes -r "%ROOT%requirements\dev.txt" || exit /b 1
"%VENV%\Scripts\python" -m pip --disable-pip-version-check install --quiet torch==2.13.0 || exit /b 1
>"%VENV%\made-from" echo %STAMP%
:run_task
set "PATH=%VENV%\Scripts;%PATH%"
shift
set "TASK_ARGUMENTS="
:collect
if "%~1"=="" goto collected
set TASK_ARGUMENTS=%TASK_ARGUMENTS% %1
shift
goto collect
:collected
"%VENV%\Scripts\python" "%ROOT%scripts\run_task.py" %TASK_ARGUMENTS%
exit /b %errorlevel%
:with_pixi
shift
set "TASK_ARGUMENTS="
:collect_pixi
if "%~1"=="" goto collected_pixi
set TASK_ARGUMENTS=%TASK_ARGUMENTS% %1
shift
goto collect_pixi
:collected_pixi
pixi run --manifest-path "%ROOT%pixi.toml" %TASK_ARGUMENTS%
exit /b %errorlevel%
