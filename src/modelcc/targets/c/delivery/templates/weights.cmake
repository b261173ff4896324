    target_compile_definitions(${name}_example PRIVATE
        ${NAME}_WEIGHTS_PATH="$${CMAKE_CURRENT_LIST_DIR}/${name}_weights.bin")
