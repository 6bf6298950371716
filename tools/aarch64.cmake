# Cross compilation for 64-bit Arm by Debian's g++-aarch64-linux-gnu; programs run under qemu-user.
# FASTLOAD_ARM_LIBRARIES: a folder with the image libraries' arm64 packages unpacked, which
# tools/test_arm.sh makes. Without it they are static ones in CMAKE_PREFIX_PATH, for wheels.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES FASTLOAD_ARM_LIBRARIES)
if(FASTLOAD_ARM_LIBRARIES)
  set(CMAKE_CXX_FLAGS_INIT "-isystem ${FASTLOAD_ARM_LIBRARIES}/usr/include/aarch64-linux-gnu")
  # An RPATH of the old kind also serves libraries that libraries need (libz for libpng).
  set(libraries ${FASTLOAD_ARM_LIBRARIES}/lib/aarch64-linux-gnu:${FASTLOAD_ARM_LIBRARIES}/usr/lib/aarch64-linux-gnu)
  set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,--disable-new-dtags,-rpath,${libraries}")
endif()
set(CMAKE_FIND_ROOT_PATH ${FASTLOAD_ARM_LIBRARIES} $ENV{CMAKE_PREFIX_PATH} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
