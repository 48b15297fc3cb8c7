# Builds flash_attn_rocm.dll on Windows with clang-cl or MSVC, into src\flash_attn_rocm\lib, in an environment that has
# torch, CMake, ninja and nlohmann-json: conda, or a virtual environment with TheRock's wheels.
#
#   powershell -ExecutionPolicy Bypass -File scripts\build_windows.ps1 [-Compiler clang-cl|cl] [-BuildDir C:\fa]
#
# The library links no ROCm; rocm-sdk is only looked for because its clang-cl may be the one there is. Not run by anyone yet.
param(
    [ValidateSet("", "clang-cl", "cl")] [string] $Compiler = "",
    # Short: paths below it must stay under 260 characters.
    [string] $BuildDir = (Join-Path $env:SystemDrive "\fa-build"),
    [string] $Python = "python"
)
$ErrorActionPreference = "Stop"
Set-StrictMode -Version 2
# Paths with spaces and letters of any language, in what programs print too.
[Console]::OutputEncoding = [System.Text.Encoding]::UTF8
$env:PYTHONUTF8 = "1"
$root = Split-Path -Parent $PSScriptRoot

function Invoke-Checked([string] $What, [string] $Program, [string[]] $Arguments) {
    & $Program @Arguments
    if ($LASTEXITCODE -ne 0) { throw "$What failed with exit code ${LASTEXITCODE}: $Program $($Arguments -join ' ')" }
}

function Get-FromPython([string] $Code) {
    $text = & $Python -c $Code
    if ($LASTEXITCODE -ne 0) { throw "$Python cannot run: $Code. Activate the environment that has torch, or pass -Python" }
    return ($text | Select-Object -Last 1).Trim()
}

# The variables of vcvars64.bat: headers and libraries of MSVC and Windows, which clang-cl uses too.
function Import-VisualStudio {
    if ($env:VCToolsInstallDir) { return }
    $vswhere = Join-Path ${env:ProgramFiles(x86)} "Microsoft Visual Studio\Installer\vswhere.exe"
    if (-not (Test-Path -LiteralPath $vswhere)) {
        throw "Visual Studio was not found ($vswhere does not exist). Install the Build Tools with 'Desktop development with C++'"
    }
    $tools = "Microsoft.VisualStudio.Component.VC.Tools.x86.x64"
    $found = & $vswhere "-latest" "-utf8" "-products" "*" "-requires" $tools "-property" "installationPath"
    if (-not $found) { throw "Visual Studio has no C++ tools for x64. Add 'Desktop development with C++' in its installer" }
    $vcvars = Join-Path $found "VC\Auxiliary\Build\vcvars64.bat"
    $lines = & $env:ComSpec /d /u /c "chcp 65001 >nul & call `"$vcvars`" >nul & set" | ForEach-Object { $_ -replace "`0", "" }
    foreach ($line in $lines) {
        if ($line -match "^([^=]+)=(.*)$") { Set-Item -LiteralPath "Env:$($Matches[1])" -Value $Matches[2] }
    }
    if (-not $env:VCToolsInstallDir) { throw "$vcvars set no VCToolsInstallDir" }
}

# clang-cl of the environment, of rocm-sdk or of Visual Studio; else MSVC's cl.
function Find-Compiler {
    if ($Compiler -ne "cl") {
        $places = @()
        $rocm = Get-Command rocm-sdk -ErrorAction SilentlyContinue
        if ($rocm) { $places += Join-Path ((& rocm-sdk path --root) | Select-Object -Last 1).Trim() "lib\llvm\bin\clang-cl.exe" }
        $onPath = Get-Command clang-cl -ErrorAction SilentlyContinue
        if ($onPath) { $places = @($onPath.Source) + $places }
        foreach ($place in $places) { if (Test-Path -LiteralPath $place) { return $place } }
        if ($Compiler -eq "clang-cl") { throw "clang-cl was not found on PATH or in rocm-sdk. Pass -Compiler cl for MSVC" }
    }
    return (Get-Command cl).Source
}

Import-VisualStudio
$cxx = Find-Compiler
$torch = Get-FromPython "import importlib.util, pathlib; print(pathlib.Path(importlib.util.find_spec('torch').origin).parent)"
$json = Get-FromPython "import sys, pathlib, importlib.util as u; s = u.find_spec('nlohmann_json'); print(next(str(p) for p in ([pathlib.Path(s.submodule_search_locations[0]) / 'include'] if s else []) + [pathlib.Path(sys.prefix) / 'Library' / 'include'] if (p / 'nlohmann' / 'json.hpp').exists()))"
# conda-forge's libtorch keeps its import library in Library\lib, the wheels inside the package.
$libs = @((Join-Path $torch "lib"), (Join-Path (Get-FromPython "import sys; print(sys.prefix)") "Library\lib"))
$lib = $libs | Where-Object { Test-Path -LiteralPath (Join-Path $_ "torch_cpu.lib") } | Select-Object -First 1
if (-not $lib) { throw "torch_cpu.lib is in none of: $($libs -join ', ')" }

$forward = { param($path) $path -replace "\\", "/" }
$includes = "$(& $forward (Join-Path $torch 'include'));$(& $forward (Join-Path $torch 'include\torch\csrc\api\include'))"
Invoke-Checked "CMake" "cmake" @(
    "-S", (& $forward (Join-Path $root "csrc")), "-B", (& $forward $BuildDir), "-G", "Ninja",
    "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_COMPILER=$(& $forward $cxx)",
    # Command lines on Windows end at 32,767 characters.
    "-DCMAKE_NINJA_FORCE_RESPONSE_FILE=ON",
    "-DCMAKE_INSTALL_PREFIX=$(& $forward (Join-Path $root 'src\flash_attn_rocm\lib'))",
    "-DTORCH_INCLUDE_DIRS=$includes", "-DTORCH_LIB_DIR=$(& $forward $lib)", "-DNLOHMANN_INCLUDE_DIR=$(& $forward $json)")
Invoke-Checked "The build" "cmake" @("--build", (& $forward $BuildDir))
Invoke-Checked "The installation" "cmake" @("--install", (& $forward $BuildDir))
Write-Host "Built $(Join-Path $root 'src\flash_attn_rocm\lib\flash_attn_rocm.dll') with $cxx"
Write-Host "Check it: $Python -m flash_attn_rocm verify"
