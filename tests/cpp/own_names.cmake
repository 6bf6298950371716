# Fails where an object of a SIMD level has a weak function (an inline one, say) outside the namespace of its level: the
# linker keeps one of several, and may give it to code that runs on any CPU.
#   cmake -DNM=nm -DLEVEL=avx2 "-DOBJECTS=a.o;b.o" -P own_names.cmake
if(NOT OBJECTS)
  message(FATAL_ERROR "level ${LEVEL} has no objects")
endif()
execute_process(COMMAND ${NM} -C --defined-only ${OBJECTS} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
if(NOT symbols MATCHES "fastload::")
  message(FATAL_ERROR "${NM} shows no functions of level ${LEVEL}:\n${symbols}")
endif()
string(REGEX MATCHALL "[0-9a-f]+ W [^\n]+" weak "${symbols}")
list(FILTER weak EXCLUDE REGEX "fastload::${LEVEL}::")
if(weak)
  list(JOIN weak "\n  " weak)
  message(FATAL_ERROR "level ${LEVEL}: give these internal linkage (an unnamed namespace), or have them inlined:\n  ${weak}")
endif()
