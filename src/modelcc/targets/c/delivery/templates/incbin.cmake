
set(weights "$${CMAKE_CURRENT_LIST_DIR}/${name}_weights.bin")
set_source_files_properties(${name}_weights.c PROPERTIES OBJECT_DEPENDS "$${weights}"
    COMPILE_DEFINITIONS "${NAME}_WEIGHTS_FILE=\"$${weights}\"")
