# What `cmake --install` puts where: the program, the libraries, the public headers, and the package that
# find_package(winnow) finds. Nothing in it knows where it was built or installed.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/winnow)

set_target_properties(winnow_api PROPERTIES EXPORT_NAME winnow)
target_compile_features(winnow_api PUBLIC cxx_std_20)
add_library(winnow::winnow ALIAS winnow_api)
get_property(layers GLOBAL PROPERTY WINNOW_LAYERS)
install(TARGETS ${layers} EXPORT winnow INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT winnow NAMESPACE winnow:: FILE winnowTargets.cmake DESTINATION ${package_dir})
install(DIRECTORY include/winnow DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

configure_file(cmake/winnowConfig.cmake.in winnowConfig.cmake @ONLY)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/winnowConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/dependencies.cmake ${CMAKE_BINARY_DIR}/winnowConfig.cmake
  ${CMAKE_BINARY_DIR}/winnowConfigVersion.cmake DESTINATION ${package_dir})

# ggml and libllama stay where they are; the program finds them there.
set_target_properties(winnow PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS winnow)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
