/* The native call path: launching host kernels, addresses of arrays, pooled memory.
 * What a kernel means, which arrays it accepts and every error text for users live in Python.
 *
 * `_native_py.py` is the same module in Python; tests/null/test_native.py holds both to one
 * behaviour. The lock of everything here is the GIL, except that kernels may run without it.
 */
#define _GNU_SOURCE
#include "_native.h"

#include <stdalign.h>
#include <string.h>

#include "abi.h"
#include "blocks.h"

#define MAX_OPERANDS 32
#define MAX_DIMS 32
#define MAX_CAPTURES 4096    /* bytes */
#define SMALL_WORKSPACE 4096 /* bytes that come from the stack */
#define GIL_ABOVE 32768      /* elements from which a kernel runs without the GIL */
#define NATIVE_ORDER (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? '>' : '<')

static struct km_runtime runtime = {km_parallel_for, 0, 32 << 20};

/* ---- pooled memory --------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    char *at;
    size_t size; /* of the block */
    Py_ssize_t nbytes;
} HostBuffer;

static PyObject *hostbuffer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"nbytes", NULL};
    Py_ssize_t nbytes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "n:HostBuffer", names, &nbytes)) return NULL;
    if (nbytes < 0)
        return PyErr_Format(PyExc_ValueError, "HostBuffer of %zd bytes: expected >= 0", nbytes);
    HostBuffer *self = (HostBuffer *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self) return NULL;
    self->size = km_block_size((size_t)nbytes);
    self->nbytes = nbytes;
    if (!self->size || !(self->at = km_block_take(self->size))) {
        Py_DECREF(self);
        return PyErr_Format(PyExc_MemoryError, "no memory for %zd bytes", nbytes);
    }
    return (PyObject *)self;
}

void km_free_object(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static void hostbuffer_dealloc(PyObject *self) {
    HostBuffer *b = (HostBuffer *)self;
    if (b->at) km_block_give(b->at, b->size);
    km_free_object(self);
}

static int hostbuffer_get(PyObject *self, Py_buffer *view, int flags) {
    return PyBuffer_FillInfo(view, self, ((HostBuffer *)self)->at, ((HostBuffer *)self)->nbytes, 0,
                             flags);
}

static PyMemberDef hostbuffer_members[] = {
    {"nbytes", T_PYSSIZET, offsetof(HostBuffer, nbytes), READONLY, "Size in bytes."},
    {"address", T_PYSSIZET, offsetof(HostBuffer, at), READONLY, "Address of the first byte."},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot hostbuffer_slots[] = {
    {Py_tp_doc, "HostBuffer(nbytes): uninitialised host memory from the pool, 64-byte aligned."},
    {Py_tp_new, hostbuffer_new},
    {Py_tp_dealloc, hostbuffer_dealloc},
    {Py_tp_members, hostbuffer_members},
    {Py_bf_getbuffer, hostbuffer_get},
    {0, NULL},
};
static PyType_Spec hostbuffer_spec = {
    "kernelmill._native.HostBuffer", sizeof(HostBuffer), 0, Py_TPFLAGS_DEFAULT, hostbuffer_slots};

static PyObject *memory_stats(PyObject *module, PyObject *args) {
    const struct km_block_stats *s = km_block_stats();
    Py_ssize_t limit = -1;
    (void)module;
    if (!PyArg_ParseTuple(args, "|n:memory_stats", &limit)) return NULL;
    if (limit >= 0) km_block_set_limit((size_t)limit);
    return Py_BuildValue("(KKK)", (unsigned long long)s->used, (unsigned long long)s->cached,
                         (unsigned long long)s->limit);
}

/* ---- NumPy arrays ----------------------------------------------------------------------
 * The first fields of PyArrayObject have not changed since NumPy 1.0; `find_numpy` compares them
 * with what an array says of itself and leaves `array_type` NULL when they do not agree.
 */

typedef struct {
    PyObject_HEAD
    char *data;
    int nd;
    Py_ssize_t *dims, *strides;
    PyObject *base, *descr;
    int flags;
} Array;
#define CONTIGUOUS 0x1
#define ALIGNED 0x100
#define WRITEABLE 0x400

static PyTypeObject *array_type;

static int find_numpy(void) {
    PyObject *numpy = PyImport_ImportModule("numpy");
    PyObject *type = numpy ? PyObject_GetAttrString(numpy, "ndarray") : NULL;
    PyObject *probe = type ? PyObject_CallFunction(type, "(ii)s", 2, 3, "f4") : NULL;
    PyObject *descr = probe ? PyObject_GetAttrString(probe, "dtype") : NULL;
    PyObject *face = descr ? PyObject_GetAttrString(probe, "__array_interface__") : NULL;
    PyObject *data = face ? PyDict_GetItemString(face, "data") : NULL;
    const Array *a = (const Array *)probe;
    if (data && a->data == PyLong_AsVoidPtr(PyTuple_GetItem(data, 0)) && a->nd == 2 &&
        a->dims[0] == 2 && a->dims[1] == 3 && a->strides[0] == 12 && a->strides[1] == 4 &&
        a->descr == descr && (a->flags & 0x503) == (CONTIGUOUS | ALIGNED | WRITEABLE))
        array_type = (PyTypeObject *)type;
    Py_XINCREF((PyObject *)array_type);
    PyObject *all[] = {face, descr, probe, type, numpy};
    for (int i = 0; i < 5; i++) Py_XDECREF(all[i]);
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- launching ------------------------------------------------------------------------- */

static PyObject *run(km_kernel_fn entry, struct km_call *c, const void *captures,
                     size_t captures_size, size_t workspace, int release) {
    alignas(64) char values[MAX_CAPTURES], small[SMALL_WORKSPACE];
    size_t block = workspace > sizeof small ? km_block_size(workspace) : 0;
    c->runtime = &runtime;
    c->captures = memcpy(values, captures ? captures : "", captures_size); /* aligned, and ours */
    c->workspace = block ? km_block_take(block) : small;
    if (!c->workspace || (workspace > sizeof small && !block))
        return PyErr_Format(PyExc_MemoryError, "no memory for a workspace of %zu bytes", workspace);
    if (release) {
        Py_BEGIN_ALLOW_THREADS
        entry(c);
        Py_END_ALLOW_THREADS
    } else {
        entry(c);
    }
    if (block) km_block_give(c->workspace, block);
    Py_RETURN_TRUE;
}

int64_t *km_read_ints(PyObject *tuple, int64_t *to, int64_t *end, int *count) {
    *count = PyTuple_Check(tuple) ? (int)PyTuple_Size(tuple) : -1;
    if (*count < 0 || *count > end - to) {
        PyErr_Format(PyExc_TypeError, "expected a tuple of at most %d integers", (int)(end - to));
        return NULL;
    }
    for (int i = 0; i < *count; i++) *to++ = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    return PyErr_Occurred() ? NULL : to;
}

/* call(entry, shape, pointers, strides, captures, workspace, flags, threads, release_gil) */
static PyObject *call(PyObject *module, PyObject *const *args, Py_ssize_t n_args) {
    int64_t numbers[MAX_DIMS + MAX_OPERANDS * (MAX_DIMS + 1)], *end = numbers + sizeof numbers / 8;
    struct km_operand operands[MAX_OPERANDS];
    struct km_call c = {.shape = numbers, .operands = operands};
    Py_buffer captures = {0};
    int n, dims;
    (void)module;
    if (n_args != 9) goto wrong;
    km_kernel_fn entry = (km_kernel_fn)(uintptr_t)PyLong_AsVoidPtr(args[0]);
    int64_t *at = km_read_ints(args[1], numbers, numbers + MAX_DIMS, &c.ndim);
    if (!entry || !at) goto wrong;
    int64_t *pointers = at;
    if (!(at = km_read_ints(args[2], at, at + MAX_OPERANDS, &n))) return NULL;
    if (!PyTuple_Check(args[3]) || PyTuple_Size(args[3]) != n) goto wrong;
    for (int k = 0; k < n; k++) {
        operands[k] = (struct km_operand){(char *)(uintptr_t)pointers[k], at};
        if (!(at = km_read_ints(PyTuple_GetItem(args[3], k), at, end, &dims))) return NULL;
        if (dims != c.ndim) goto wrong;
    }
    size_t workspace = PyLong_AsSize_t(args[5]);
    c.flags = PyLong_AsLongLong(args[6]);
    c.threads = (int)PyLong_AsLong(args[7]);
    if (PyErr_Occurred()) return NULL;
    if (args[4] != Py_None && PyObject_GetBuffer(args[4], &captures, PyBUF_SIMPLE)) return NULL;
    PyObject *done = captures.len > MAX_CAPTURES ? NULL : run(entry, &c, captures.buf,
                     (size_t)captures.len, workspace, PyObject_IsTrue(args[8]));
    PyBuffer_Release(&captures);
    if (done) return done;
wrong:
    if (PyErr_Occurred()) return NULL;
    return PyErr_Format(PyExc_ValueError, "call(): the arguments do not fit each other");
}

typedef struct {
    PyObject_HEAD
    vectorcall fast;
    km_kernel_fn entry;
    int n, n_outputs, threads;
    PyObject *dtypes[MAX_OPERANDS];
    int64_t itemsize[MAX_OPERANDS];
    Py_buffer captures;
    int64_t workspace, serial_below, nontemporal_above, gil_above, limit, flags;
    /* For fixed shapes; `numbers` owns what the others point to and is NULL otherwise. */
    int64_t *numbers, *shapes[MAX_OPERANDS], *strides[MAX_OPERANDS], *call_shape;
    int nd[MAX_OPERANDS], ndim;
} Launcher;

/* Whether operand k is an array that the kernel can take as it is. */
static int admits(Launcher *self, int k, PyObject *object) {
    const Array *a = (const Array *)object;
    int need = CONTIGUOUS | ALIGNED | (k < self->n - self->n_outputs ? 0 : WRITEABLE);
    if (Py_TYPE(object) != array_type || (a->flags & need) != need) return 0;
    if (a->descr == self->dtypes[k]) return 1;
    int same = PyObject_RichCompareBool(a->descr, self->dtypes[k], Py_EQ);
    if (same < 0) PyErr_Clear();
    return same > 0;
}

static int same_dims(const Array *a, int nd, const Py_ssize_t *dims) {
    return a->nd == nd && (!nd || memcmp(a->dims, dims, (size_t)nd * sizeof *dims) == 0);
}

static int64_t product(int nd, const Py_ssize_t *dims) {
    int64_t n = 1;
    for (int d = 0; d < nd; d++) n *= dims[d];
    return n;
}

/* Whether an output shares bytes with another operand, other than element for element. */
static int clashes(Launcher *self, const struct km_operand *o, const int64_t *bytes) {
    int n_inputs = self->n - self->n_outputs;
    for (int out = n_inputs; out < self->n; out++) {
        for (int k = 0; k < out; k++) {
            const char *a = o[k].data, *b = o[out].data;
            int apart = a + bytes[k] <= b || b + bytes[out] <= a;
            int same = a == b && bytes[k] == bytes[out] && k < n_inputs && !self->numbers;
            if (!apart && !same) return 1;
        }
    }
    return 0;
}

static PyObject *launch(PyObject *object, PyObject *const *args, size_t n_args, PyObject *names) {
    Launcher *self = (Launcher *)object;
    struct km_operand operands[MAX_OPERANDS];
    int64_t bytes[MAX_OPERANDS], total = 0, n;
    struct km_call c = {.operands = operands, .shape = &n, .ndim = 1};
    void *captures = self->captures.buf;
    n_args = ARGUMENT_COUNT(n_args);
    if (!array_type || names || n_args < (size_t)self->n) Py_RETURN_FALSE;
    if (n_args > (size_t)self->n) {
        char *given;
        Py_ssize_t size;
        if (n_args != (size_t)self->n + 1 || !PyBytes_Check(args[self->n])) Py_RETURN_FALSE;
        PyBytes_AsStringAndSize(args[self->n], &given, &size);
        if (size != self->captures.len) Py_RETURN_FALSE;
        captures = given;
    }
    const Array *first = (const Array *)args[0];
    for (int k = 0; k < self->n; k++) {
        const Array *a = (const Array *)args[k];
        if (!admits(self, k, args[k])) Py_RETURN_FALSE;
        if (self->numbers ? !same_dims(a, self->nd[k], self->shapes[k])
                          : k && !same_dims(a, first->nd, first->dims))
            Py_RETURN_FALSE;
        operands[k].data = a->data;
        operands[k].strides = self->numbers ? self->strides[k] : &self->itemsize[k];
        bytes[k] = product(a->nd, a->dims) * self->itemsize[k];
        total += bytes[k];
    }
    n = product(first->nd, first->dims);
    if (self->numbers) n = product(c.ndim = self->ndim, c.shape = self->call_shape);
    if (n < 1 || n > self->limit || clashes(self, operands, bytes)) Py_RETURN_FALSE;
    int64_t most = self->threads < runtime.threads ? self->threads : runtime.threads;
    int64_t wanted = 1 + n / self->serial_below;
    c.threads = (int)(wanted < most ? wanted : most);
    int64_t fits = self->nontemporal_above;
    if (fits < 0) fits = runtime.nontemporal_bytes;
    c.flags = self->flags | KM_FLAG_STREAM * (total > fits);
    return run(self->entry, &c, captures, (size_t)self->captures.len, (size_t)self->workspace,
               n > self->gil_above);
}

static PyObject *launcher_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *items[MAX_OPERANDS + 1];
    Py_ssize_t n = PyTuple_Size(args);
    if (n > MAX_OPERANDS + 1) Py_RETURN_FALSE;
    for (Py_ssize_t i = 0; i < n; i++) items[i] = PyTuple_GetItem(args, i);
    return launch(self, items, (size_t)n, kwargs && PyDict_Size(kwargs) ? kwargs : NULL);
}

static void launcher_dealloc(PyObject *object) {
    Launcher *self = (Launcher *)object;
    PyBuffer_Release(&self->captures);
    for (int k = 0; k < MAX_OPERANDS; k++) Py_XDECREF(self->dtypes[k]);
    PyMem_Free(self->numbers);
    km_free_object(object);
}

/* fixed = (shape of each operand, shape of the call, strides of each operand in the call) */
static int read_fixed(Launcher *self, PyObject *fixed) {
    PyObject *shapes, *shape, *strides;
    const int room = MAX_DIMS * (2 * self->n + 1);
    int dims = -1;
    if (!PyArg_ParseTuple(fixed, "O!O!O!;fixed = (shapes, shape, strides)", &PyTuple_Type, &shapes,
                          &PyTuple_Type, &shape, &PyTuple_Type, &strides))
        return -1;
    int64_t *at = self->numbers = PyMem_Calloc((size_t)room, sizeof(int64_t)), *end = at + room;
    if (!at) return PyErr_NoMemory(), -1;
    self->call_shape = at;
    if (!(at = km_read_ints(shape, at, at + MAX_DIMS, &self->ndim))) return -1;
    if (PyTuple_Size(shapes) != self->n || PyTuple_Size(strides) != self->n) goto wrong;
    for (int k = 0; k < self->n; k++) {
        self->shapes[k] = at;
        if (!(at = km_read_ints(PyTuple_GetItem(shapes, k), at, end, &self->nd[k]))) return -1;
        self->strides[k] = at;
        if (!(at = km_read_ints(PyTuple_GetItem(strides, k), at, end, &dims))) return -1;
        if (dims != self->ndim) goto wrong;
    }
    return 0;
wrong:
    PyErr_SetString(PyExc_ValueError, "Launcher: the shapes and strides in fixed do not fit");
    return -1;
}

static int fill_launcher(Launcher *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"entry",     "dtypes",        "n_outputs",         "captures",
                            "workspace", "serial_below",  "nontemporal_above", "gil_above",
                            "limit",     "max_threads",   "flags",             "fixed", NULL};
    PyObject *entry, *dtypes, *captures = Py_None, *fixed = Py_None;
    self->serial_below = self->gil_above = GIL_ABOVE;
    self->nontemporal_above = -1;
    self->limit = PY_SSIZE_T_MAX;
    self->threads = KM_POOL_MAX_THREADS;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OO!i|$OLLLLLiLO:Launcher", names, &entry, &PyTuple_Type, &dtypes,
            &self->n_outputs, &captures, &self->workspace, &self->serial_below,
            &self->nontemporal_above, &self->gil_above, &self->limit, &self->threads, &self->flags,
            &fixed))
        return -1;
    Py_ssize_t n = PyTuple_Size(dtypes);
    self->entry = (km_kernel_fn)(uintptr_t)PyLong_AsVoidPtr(entry);
    if (PyErr_Occurred()) return -1;
    if (!self->entry || n < 1 || n > MAX_OPERANDS || self->n_outputs < 0 || self->n_outputs > n ||
        self->serial_below < 1 || self->workspace < 0 || self->threads < 1) {
        PyErr_SetString(PyExc_ValueError, "Launcher: an argument is out of range");
        return -1;
    }
    self->n = (int)n;
    for (int k = 0; k < self->n; k++) {
        self->dtypes[k] = PyTuple_GetItem(dtypes, k);
        Py_INCREF(self->dtypes[k]);
        PyObject *size = PyObject_GetAttrString(self->dtypes[k], "itemsize");
        self->itemsize[k] = size ? PyLong_AsLongLong(size) : -1;
        Py_XDECREF(size);
        if (PyErr_Occurred()) return -1;
    }
    if (captures != Py_None && PyObject_GetBuffer(captures, &self->captures, PyBUF_SIMPLE))
        return -1;
    if (self->captures.len > MAX_CAPTURES) {
        PyErr_Format(PyExc_ValueError, "Launcher: %zd bytes of captures; limit: %d",
                     self->captures.len, MAX_CAPTURES);
        return -1;
    }
    if (fixed == Py_None) return 0;
    return PyTuple_Check(fixed) ? read_fixed(self, fixed) : (PyErr_BadArgument(), -1);
}

static PyObject *launcher_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    Launcher *self = (Launcher *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self) return NULL;
    self->fast = launch;
    if (fill_launcher(self, args, kwargs) == 0) return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static PyMemberDef launcher_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Launcher, fast), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot launcher_slots[] = {
    {Py_tp_doc, "Launcher(entry, dtypes, n_outputs, ...): a kernel, called with NumPy arrays."},
    {Py_tp_new, launcher_new},
    {Py_tp_dealloc, launcher_dealloc},
    {Py_tp_call, launcher_call},
    {Py_tp_members, launcher_members},
    {0, NULL},
};
static PyType_Spec launcher_spec = {"kernelmill._native.Launcher", sizeof(Launcher), 0,
                                    Py_TPFLAGS_DEFAULT | HAVE_VECTORCALL, launcher_slots};

/* ---- addresses -------------------------------------------------------------------------
 * address(obj, writable) -> (pointer, nbytes, dtype or typestr, shape, strides, readonly)
 */

static PyObject *ints(int n, const Py_ssize_t *values) {
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; tuple && i < n; i++) {
        PyObject *value = PyLong_FromSsize_t(values[i]);
        if (!value || PyTuple_SetItem(tuple, i, value)) Py_CLEAR(tuple);
    }
    return tuple;
}

/* `format` is borrowed; strides NULL means C order. */
static PyObject *described(const void *at, int64_t itemsize, PyObject *format, int nd,
                           const Py_ssize_t *dims, const Py_ssize_t *strides, int64_t scale,
                           int readonly, int writable) {
    Py_ssize_t steps[64];
    int64_t step = itemsize;
    if (!format) return NULL;
    if (readonly && writable) {
        PyErr_SetString(PyExc_BufferError, "the array is read-only, and is to be written");
        return NULL;
    }
    if (nd > 64) return PyErr_Format(PyExc_BufferError, "%d dimensions; limit: 64", nd);
    for (int d = nd - 1; d >= 0; d--) {
        steps[d] = strides ? strides[d] * scale : step;
        step *= dims[d];
    }
    return Py_BuildValue("(NnONNN)", PyLong_FromVoidPtr((void *)at),
                         (Py_ssize_t)(product(nd, dims) * itemsize), format, ints(nd, dims),
                         ints(nd, steps), PyBool_FromLong(readonly));
}

static PyObject *typestr(char order, char kind, Py_ssize_t itemsize) {
    if (itemsize == 1 || kind == 'V' || kind == 'S') order = '|';
    return PyUnicode_FromFormat("%c%c%zd", order, kind, itemsize);
}

static PyObject *of_buffer(PyObject *object, int writable) {
    static const char kinds[] = "?bbihiiiliqiniBuHuIuLuQuNuPuefffdfgfcSsS"; /* code, kind, ... */
    Py_buffer view;
    if (PyObject_GetBuffer(object, &view, PyBUF_FULL_RO)) return NULL;
    const char *f = view.format ? view.format : "B";
    char kind = 'V', order = *f == '<' ? '<' : *f == '>' || *f == '!' ? '>' : NATIVE_ORDER;
    if (*f && strchr("@=<>!^", *f)) f++;
    if (*f == 'Z' && f[1] && strchr("fdg", f[1]) && !f[2]) kind = 'c';
    for (const char *c = kinds; *f && !f[1] && *c; c += 2)
        if (*c == *f) kind = c[1];
    PyObject *format = typestr(order, kind, view.itemsize), *out = NULL;
    if (view.suboffsets)
        PyErr_SetString(PyExc_BufferError, "the buffer is an array of pointers (suboffsets)");
    else
        out = described(view.buf, view.itemsize, format, view.ndim, view.shape, view.strides, 1,
                        view.readonly, writable);
    Py_XDECREF(format);
    PyBuffer_Release(&view);
    return out;
}

struct dl_versioned {
    uint32_t major, minor;
    void *context, (*deleter)(void *);
    uint64_t flags;
    struct dl_tensor tensor;
};
#define DL_READ_ONLY 1
#define DL_COPIED 2

static PyObject *of_capsule(PyObject *capsule, int writable) {
    static const char kinds[] = "iuf?Vcb"; /* by DLPack code; 4 is bfloat16 */
    struct dl_versioned *v = NULL;
    struct dl_tensor *t;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        v = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        t = &v->tensor;
    } else if (!(t = PyCapsule_GetPointer(capsule, "dltensor"))) {
        return NULL;
    }
    if (t->device_type != 1 && t->device_type != 3) /* kDLCPU, kDLCUDAHost */
        return PyErr_Format(PyExc_BufferError, "DLPack device (%d, %d) is not the CPU",
                            t->device_type, t->device_id);
    if ((v && (v->major != 1 || v->flags & DL_COPIED)) || t->lanes != 1 || t->bits % 8 ||
        t->code >= sizeof kinds - 1 || kinds[t->code] == '?')
        return PyErr_Format(PyExc_BufferError, "DLPack export of code %d, %d bits, %d lanes%s",
                            t->code, t->bits, t->lanes, v ? ", a copy or of another version" : "");
    int64_t itemsize = t->bits / 8;
    PyObject *format = t->code == 4 ? PyUnicode_FromString("bfloat16")
                                    : typestr(NATIVE_ORDER, kinds[t->code], itemsize);
    PyObject *out = described(t->data + t->byte_offset, itemsize, format, t->ndim, t->shape,
                              t->strides, itemsize, v && v->flags & DL_READ_ONLY, writable);
    Py_XDECREF(format);
    return out;
}

static PyObject *of_exporter(PyObject *object, int writable) {
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
    if (!method) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return NULL;
        PyErr_Clear();
        return PyErr_Format(PyExc_TypeError, "%R is no array: it has no buffer and no __dlpack__",
                            Py_TYPE(object));
    }
    PyObject *none = PyTuple_New(0), *kwargs = Py_BuildValue("{s(ii)}", "max_version", 1, 0);
    PyObject *capsule = none && kwargs ? PyObject_Call(method, none, kwargs) : NULL;
    if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) { /* it is older than version 1 */
        PyErr_Clear();
        capsule = PyObject_CallNoArgs(method);
    }
    PyObject *out = capsule ? of_capsule(capsule, writable) : NULL;
    Py_XDECREF(capsule);
    Py_XDECREF(kwargs);
    Py_XDECREF(none);
    Py_DECREF(method);
    return out;
}

static PyObject *address(PyObject *module, PyObject *const *args, Py_ssize_t n_args) {
    (void)module;
    if (n_args < 1 || n_args > 2)
        return PyErr_Format(PyExc_TypeError, "address() takes 1 or 2 arguments, got %zd", n_args);
    int writable = n_args == 2 ? PyObject_IsTrue(args[1]) : 0;
    if (writable < 0) return NULL;
    if (array_type && PyObject_TypeCheck(args[0], array_type)) {
        const Array *a = (const Array *)args[0];
        PyObject *size = PyObject_GetAttrString(a->descr, "itemsize");
        int64_t itemsize = size ? PyLong_AsLongLong(size) : -1;
        Py_XDECREF(size);
        if (itemsize < 0) return NULL;
        return described(a->data, itemsize, a->descr, a->nd, a->dims, a->strides, 1,
                         !(a->flags & WRITEABLE), writable);
    }
    if (PyObject_CheckBuffer(args[0])) return of_buffer(args[0], writable);
    if (PyCapsule_CheckExact(args[0])) return of_capsule(args[0], writable);
    return of_exporter(args[0], writable);
}

/* ---- the module ------------------------------------------------------------------------ */

static PyObject *configure(PyObject *module, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"threads", "spin_us", "nontemporal_bytes", NULL};
    int threads = 0, spin_us = -1;
    long long bytes = runtime.nontemporal_bytes;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|iiL:configure", names, &threads, &spin_us,
                                     &bytes))
        return NULL;
    Py_BEGIN_ALLOW_THREADS /* it waits for a region that runs */
    threads = km_pool_start(threads, spin_us);
    Py_END_ALLOW_THREADS
    runtime.threads = threads;
    runtime.nontemporal_bytes = bytes;
    return PyLong_FromLong(threads);
}

static PyObject *thread_count(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return PyLong_FromLong(runtime.threads);
}

static PyMethodDef methods[] = {
    {"address", (PyCFunction)(void *)address, METH_FASTCALL, "address(obj, writable=False)"},
    {"call", (PyCFunction)(void *)call, METH_FASTCALL,
     "call(entry, shape, pointers, strides, captures, workspace, flags, threads, release_gil)"},
    {"configure", (PyCFunction)(void *)configure, METH_VARARGS | METH_KEYWORDS,
     "configure(threads=0, spin_us=-1, nontemporal_bytes=...) -> number of threads"},
    {"cuda_library", (PyCFunction)(void *)km_cuda_library, METH_VARARGS | METH_KEYWORDS,
     "cuda_library(type, kind, *, api, stream, is_negative, is_conjugate): a type of arrays"},
    {"memory_stats", memory_stats, METH_VARARGS,
     "memory_stats(limit=-1) -> (used, cached, limit) in bytes; limit >= 0 sets it"},
    {"thread_count", thread_count, METH_NOARGS, "thread_count() -> number of threads"},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "kernelmill._native",
                                        .m_doc = "The native call path.", .m_size = -1,
                                        .m_methods = methods};

PyTypeObject *km_launcher_type, *km_cuda_launcher_type;

static int add(PyObject *module, const char *name, PyObject *value) {
    int failed = !value || PyModule_AddObjectRef(module, name, value);
    Py_XDECREF(value);
    return failed;
}

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    runtime.threads = km_pool_threads();
    km_launcher_type = (PyTypeObject *)PyType_FromSpec(&launcher_spec);
    km_cuda_launcher_type = (PyTypeObject *)PyType_FromSpec(&km_cuda_launcher_spec);
    Py_XINCREF((PyObject *)km_launcher_type); /* for good */
    Py_XINCREF((PyObject *)km_cuda_launcher_type);
    if (find_numpy() || add(module, "Launcher", (PyObject *)km_launcher_type) ||
        add(module, "CudaLauncher", (PyObject *)km_cuda_launcher_type) ||
        add(module, "Caller", km_caller_type()) ||
        add(module, "HostBuffer", PyType_FromSpec(&hostbuffer_spec)) ||
        add(module, "runtime_address", PyLong_FromVoidPtr(&runtime)) ||
        add(module, "parallel_for_address", PyLong_FromVoidPtr((void *)km_parallel_for)))
        Py_CLEAR(module);
    return module;
}
