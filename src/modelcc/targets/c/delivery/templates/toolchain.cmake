# The compiler for ${processor}: cmake -DCMAKE_TOOLCHAIN_FILE=toolchain.cmake
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR ${architecture})
set(CMAKE_C_COMPILER ${compiler}gcc)
set(CMAKE_C_FLAGS_INIT "${flags}")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
