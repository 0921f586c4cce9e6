# Finds what winnow stands on. ggml and libllama come from CMAKE_PREFIX_PATH or, failing that, from the
# folder that scripts/setup fills. Nothing is downloaded here.
set(WINNOW_GGML_MINIMUM 0.25.3)
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
if(NOT ggml_FOUND OR NOT llama_FOUND)
  message(FATAL_ERROR "ggml and libllama were not found. Run scripts/setup, or point CMAKE_PREFIX_PATH "
    "to an installation of llama.cpp with ggml ${WINNOW_GGML_MINIMUM} or newer.")
endif()
if(ggml_VERSION VERSION_LESS WINNOW_GGML_MINIMUM)
  message(FATAL_ERROR "ggml ${ggml_VERSION} in ${ggml_DIR} is too old: ${WINNOW_GGML_MINIMUM} or newer is needed.")
endif()
message(STATUS "ggml ${ggml_VERSION}: ${ggml_DIR}")

find_package(Threads REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 REQUIRED)
find_package(hwy CONFIG REQUIRED)
