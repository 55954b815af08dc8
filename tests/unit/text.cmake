# coppicectl's own text functions: no daemon, no proto.
coppice_test(NAME text_test SOURCES unit/text_test.c ${PROJECT_SOURCE_DIR}/client/ctl/text.c LABELS unit)
target_include_directories(text_test PRIVATE ${PROJECT_SOURCE_DIR})
