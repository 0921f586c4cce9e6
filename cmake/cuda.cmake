# The kernels for GPUs, src/kernels/cuda, with their tests and benchmark: part of winnow with WINNOW_CUDA, and a project of its own
# (tools/gpu) where ggml and libllama are not at hand.
set(winnow_root ${CMAKE_CURRENT_LIST_DIR}/..)
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90a-real)  # Hopper: the kernels use its clusters, copy engine and products of warpgroups
endif()
find_program(ccache_program ccache)
if(ccache_program)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${ccache_program})
endif()
enable_language(CUDA)
find_package(CUDAToolkit 12.4 REQUIRED)

# Contraction is off, as in winnow_flags. CMake 3.25 does not know the flag of this compiler's C++20.
add_library(winnow_cuda_flags INTERFACE)
target_compile_options(winnow_cuda_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 -O3 -fmad=false --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra
  $<$<BOOL:${WINNOW_WERROR}>:-Werror=all-warnings>>
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Wcast-qual
  -Wmissing-declarations -ffp-contract=off $<$<BOOL:${WINNOW_WERROR}>:-Werror>>)

# winnow_cuda_kernels(base): the library winnow_kernels_cuda on `base`, which has what base and cache have.
function(winnow_cuda_kernels base)
  file(GLOB sources CONFIGURE_DEPENDS ${winnow_root}/src/kernels/cuda/*.cu ${winnow_root}/src/kernels/cuda/*.cpp)
  add_library(winnow_kernels_cuda STATIC ${sources})
  target_include_directories(winnow_kernels_cuda PUBLIC
    $<BUILD_INTERFACE:${winnow_root}/src> $<BUILD_INTERFACE:${winnow_root}/include>)
  target_compile_features(winnow_kernels_cuda PUBLIC cxx_std_20)
  target_link_libraries(winnow_kernels_cuda PUBLIC ${base} PRIVATE CUDA::cudart_static $<BUILD_INTERFACE:winnow_cuda_flags>)
endfunction()

# cuda_test and cuda_bench on that library.
function(winnow_cuda_programs)
  file(GLOB sources CONFIGURE_DEPENDS ${winnow_root}/tests/cuda/*_test.cpp)
  add_executable(cuda_test ${sources} ${winnow_root}/tests/support/eviction_grid.cpp
    ${winnow_root}/tests/oracle/attention_oracle.cpp ${winnow_root}/tests/oracle/select_oracle.cpp)
  target_include_directories(cuda_test PRIVATE ${winnow_root}/tests)
  target_link_libraries(cuda_test PRIVATE winnow_kernels_cuda winnow_cuda_flags GTest::gtest GTest::gtest_main)
  add_executable(cuda_bench ${winnow_root}/bench/cuda_bench.cpp ${winnow_root}/bench/cuda_ceilings.cu)
  target_link_libraries(cuda_bench PRIVATE winnow_kernels_cuda winnow_cuda_flags CUDA::cudart_static)
  set_target_properties(cuda_test cuda_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endfunction()
