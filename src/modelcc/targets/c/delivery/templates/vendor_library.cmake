
# What it calls of ${library}: a target of the project around this one, or sources in a folder.
if(NOT TARGET ${library})
    set(${LIBRARY}_PATH "" CACHE PATH "folder of ${library}")
    add_subdirectory("$${${LIBRARY}_PATH}" ${library} EXCLUDE_FROM_ALL)
endif()
target_link_libraries(${name} PUBLIC $$<BUILD_INTERFACE:${library}>)
