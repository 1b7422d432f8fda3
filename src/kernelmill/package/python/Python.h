// Stands in for Python's header in kernels that bring a registration of their own: what an empty module is made
// with, in the layout of the stable ABI (of builds with the GIL). So no Python headers are needed, and those of
// another release change nothing.
#pragma once

#include <cstddef>

typedef std::ptrdiff_t Py_ssize_t;
typedef struct _object PyObject;

struct PyMethodDef;
struct PyModuleDef_Slot;

struct PyModuleDef_Base {
  Py_ssize_t ob_refcnt;
  void* ob_type;
  PyObject* (*m_init)(void);
  Py_ssize_t m_index;
  PyObject* m_copy;
};

struct PyModuleDef {
  PyModuleDef_Base m_base;
  const char* m_name;
  const char* m_doc;
  Py_ssize_t m_size;
  PyMethodDef* m_methods;
  PyModuleDef_Slot* m_slots;
  void *m_traverse, *m_clear, *m_free;
};

#define PyModuleDef_HEAD_INIT {1, nullptr, nullptr, 0, nullptr}
#define PyMODINIT_FUNC extern "C" __attribute__((visibility("default"))) PyObject*
#define PyModule_Create(module) PyModule_Create2(module, 3)

extern "C" PyObject* PyModule_Create2(PyModuleDef*, int);
