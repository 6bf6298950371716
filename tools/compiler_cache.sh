# Compiles through ccache where that is installed: the scripts that build read this file first.
# What was compiled once is kept for every build and checkout of this machine, in ccache's own folder. Paths below the
# checkout count as relative ones, so that a second checkout finds what the first one compiled.
if command -v ccache > /dev/null && [ -z "${CMAKE_CXX_COMPILER_LAUNCHER+set}" ]; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
  # Without these two ccache takes nothing that has a precompiled header.
  export CCACHE_SLOPPINESS=pch_defines,time_macros
fi
