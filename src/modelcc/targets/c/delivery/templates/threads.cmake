find_package(Threads REQUIRED)
target_link_libraries(${name} PUBLIC Threads::Threads)
