# How a folder becomes a library, and with which flags everything is compiled.
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
find_program(ccache_program ccache)
if(ccache_program)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ccache_program})
endif()

add_library(winnow_flags INTERFACE)
target_compile_features(winnow_flags INTERFACE cxx_std_20)
target_compile_options(winnow_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-qual
  -Wdouble-promotion -Wmissing-declarations -Wold-style-cast -Wimplicit-fallthrough
  -ffp-contract=off  # a fused multiply-add happens where it is written, and nowhere else
  $<$<BOOL:${WINNOW_WERROR}>:-Werror>)
if(WINNOW_SANITIZE)
  target_compile_options(winnow_flags INTERFACE
    -fsanitize=${WINNOW_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_definitions(winnow_flags INTERFACE _GLIBCXX_ASSERTIONS)
  target_link_options(winnow_flags INTERFACE -fsanitize=${WINNOW_SANITIZE})
endif()

# What every program links besides its layers.
add_library(winnow_program INTERFACE)
target_link_libraries(winnow_program INTERFACE winnow_flags)
if(WINNOW_SANITIZE STREQUAL "thread")
  add_library(winnow_openmp_order OBJECT tests/support/thread_sanitizer/openmp_order.cpp)
  target_link_libraries(winnow_openmp_order PRIVATE winnow_flags)
  target_sources(winnow_program INTERFACE $<TARGET_OBJECTS:winnow_openmp_order>)
endif()

# winnow_layer(NAME [DEPENDS layers...] [HIDES layers...] [LIBRARIES targets...]): src/NAME/**.cpp as the library
# winnow_NAME, which is installed as winnow::NAME. What it hides is linked, but its users see no headers of it. Folders named
# cuda are not part of it (cmake/cuda.cmake).
function(winnow_layer name)
  cmake_parse_arguments(arg "" "" "DEPENDS;HIDES;LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX /src/${name}/cuda/)
  add_library(winnow_${name} STATIC ${sources})
  target_include_directories(winnow_${name} PUBLIC
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src> $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>)
  target_link_libraries(winnow_${name} PRIVATE $<BUILD_INTERFACE:winnow_flags>
    PUBLIC Threads::Threads ${arg_LIBRARIES})
  foreach(layer IN LISTS arg_DEPENDS)
    target_link_libraries(winnow_${name} PUBLIC winnow_${layer})
  endforeach()
  foreach(layer IN LISTS arg_HIDES)
    target_link_libraries(winnow_${name} PRIVATE winnow_${layer})
  endforeach()
  set_target_properties(winnow_${name} PROPERTIES EXPORT_NAME ${name})
  set_property(GLOBAL APPEND PROPERTY WINNOW_LAYERS winnow_${name})
endfunction()

# The kernels are compiled once per instruction set by Highway; the oldest one has fused multiply-add,
# because their results are specified with it (docs/decisions/simd-dispatch.md). Selection's are not.
function(winnow_kernel_flags)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cpu/*.cpp)
  set(flags -O3 -Wno-missing-declarations)  # Highway finds them by address
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "${flags}")
  list(REMOVE_ITEM sources ${CMAKE_SOURCE_DIR}/src/kernels/cpu/select.cpp)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND flags -march=x86-64-v3 -maes -mpclmul)
  endif()
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "${flags}")
endfunction()
