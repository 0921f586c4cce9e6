# What `winnow report` puts into its pages becomes part of the eval library: share/report, and plotly.min.js where
# scripts/setup has put it or WINNOW_PLOTLY says. Without plotly.min.js, winnow report says that it is missing.
set(WINNOW_PLOTLY "" CACHE FILEPATH "plotly.min.js, instead of the one that scripts/setup gets")
set(report_folder ${CMAKE_BINARY_DIR}/report)
set(report_template ${CMAKE_SOURCE_DIR}/share/report/page.html)
set(report_style ${CMAKE_SOURCE_DIR}/share/report/page.css)
set(report_script ${report_folder}/report.js)
set(plotly_script ${winnow_home}/deps/plotly-7.1.0/plotly.min.js)
if(NOT "${WINNOW_PLOTLY}" STREQUAL "")
  set(plotly_script ${WINNOW_PLOTLY})
  if(NOT EXISTS ${plotly_script})
    message(FATAL_ERROR "WINNOW_PLOTLY is '${plotly_script}', which is not there.")
  endif()
endif()
if(EXISTS ${plotly_script})
  message(STATUS "plotly: ${plotly_script}")
else()
  message(STATUS "plotly: not in ${plotly_script}; winnow report will not work (scripts/setup gets it)")
  set(plotly_script ${report_folder}/no_plotly.js)
  if(NOT EXISTS ${plotly_script})
    file(WRITE ${plotly_script} "")
  endif()
endif()

file(GLOB report_scripts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/share/report/*.js)  # sorted, as their numbers say
add_custom_command(OUTPUT ${report_script} COMMAND cat ${report_scripts} > ${report_script}
  DEPENDS ${report_scripts} VERBATIM)
configure_file(cmake/report_assets.cpp.in ${report_folder}/report_assets.cpp @ONLY)
set_source_files_properties(${report_folder}/report_assets.cpp PROPERTIES
  OBJECT_DEPENDS "${report_template};${report_style};${report_script};${plotly_script}")
target_sources(winnow_eval PRIVATE ${report_folder}/report_assets.cpp)
