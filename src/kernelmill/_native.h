/* What the C files of the extension share: the limited API, DLPack's records, small helpers. */
#ifndef KM_NATIVE_H
#define KM_NATIVE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <structmember.h>

#include <stdint.h>

typedef PyObject *(*vectorcall)(PyObject *, PyObject *const *, size_t, PyObject *);
#define HAVE_VECTORCALL (1UL << 11) /* in the limited API since 3.12, in CPython since 3.8 */
#define ARGUMENT_COUNT(n) ((n) & ~((size_t)1 << (8 * sizeof(size_t) - 1)))

struct dl_tensor { /* https://dmlc.github.io/dlpack/latest/c_api.html */
    char *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* strides in elements, NULL for C order */
    uint64_t byte_offset;
};

/* _native.c */
void km_free_object(PyObject *self);
int64_t *km_read_ints(PyObject *tuple, int64_t *to, int64_t *end, int *count);

extern PyTypeObject *km_launcher_type, *km_cuda_launcher_type;

/* _native_plan.c: a new reference to `Caller`. */
PyObject *km_caller_type(void);

/* _native_cuda.c: `CudaLauncher` and the functions of the module that belong to it. */
extern PyType_Spec km_cuda_launcher_spec;
PyObject *km_cuda_library(PyObject *module, PyObject *args, PyObject *kwargs);

#endif
