// Members of libstdc++ that came with GLIBCXX_3.4.26 and later, made here so that they are not imported.
// The object lies in an archive: a library that uses none of them takes nothing of it.
#include <sstream>

template std::basic_stringstream<char>::basic_stringstream();
template std::basic_ostringstream<char>::basic_ostringstream();
template std::basic_istringstream<char>::basic_istringstream();
#if __cplusplus >= 202002L
template std::string std::basic_stringbuf<char>::str() const&;
template std::string std::basic_stringbuf<char>::str() &&;
#endif
