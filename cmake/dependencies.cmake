# Finds what winnow's libraries stand on; part of the installed package too. ggml and libllama come from CMAKE_PREFIX_PATH
# or, failing that, from the folder that scripts/setup fills. Nothing is downloaded here. What is wrong, if anything, is
# said in winnow_problem.
set(winnow_ggml_minimum 0.25.3)
set(winnow_problem "")
if("$ENV{WINNOW_HOME}" STREQUAL "")
  set(winnow_home $ENV{HOME}/.cache/winnow)
else()
  set(winnow_home $ENV{WINNOW_HOME})
endif()

# Both packages from one place: a ggml and a libllama of different builds do not fit together.
macro(winnow_find_llama)
  find_package(ggml CONFIG QUIET ${ARGN})
  find_package(llama CONFIG QUIET ${ARGN})
endmacro()
winnow_find_llama()
if(NOT ggml_FOUND OR NOT llama_FOUND)
  winnow_find_llama(PATHS ${winnow_home}/deps/llama-cpp-python-0.3.36 NO_DEFAULT_PATH)
endif()
find_package(Threads QUIET)
find_package(hwy CONFIG QUIET)
# Debian's CMake package of libzip asks for programs that stand in other packages.
find_path(winnow_zip_dir zip.h)
find_library(winnow_zip_library zip)
if(winnow_zip_dir AND winnow_zip_library AND NOT TARGET winnow_zip)
  add_library(winnow_zip INTERFACE IMPORTED)
  target_include_directories(winnow_zip SYSTEM INTERFACE ${winnow_zip_dir})
  target_link_libraries(winnow_zip INTERFACE ${winnow_zip_library})
endif()
# Debian's RE2 has no CMake package.
find_path(winnow_re2_dir re2/re2.h)
find_library(winnow_re2_library re2)
if(winnow_re2_dir AND winnow_re2_library AND NOT TARGET winnow_re2)
  add_library(winnow_re2 INTERFACE IMPORTED)
  target_include_directories(winnow_re2 SYSTEM INTERFACE ${winnow_re2_dir})
  target_link_libraries(winnow_re2 INTERFACE ${winnow_re2_library})
endif()

if(NOT ggml_FOUND OR NOT llama_FOUND)
  set(winnow_problem "ggml and libllama were not found. Run scripts/setup, or point CMAKE_PREFIX_PATH to an \
installation of llama.cpp with ggml ${winnow_ggml_minimum} or newer.")
elseif(ggml_VERSION VERSION_LESS winnow_ggml_minimum)
  set(winnow_problem
    "ggml ${ggml_VERSION} in ${ggml_DIR} is too old: ${winnow_ggml_minimum} or newer is needed.")
elseif(NOT Threads_FOUND)
  set(winnow_problem "No thread library was found.")
elseif(NOT hwy_FOUND)
  set(winnow_problem "Highway was not found (Debian: libhwy-dev).")
elseif(NOT TARGET winnow_zip)
  set(winnow_problem "libzip was not found (Debian: libzip-dev).")
elseif(NOT TARGET winnow_re2)
  set(winnow_problem "RE2 was not found (Debian: libre2-dev).")
endif()
