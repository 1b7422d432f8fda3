/* Launching kernels on CUDA devices from arrays of any library: `CudaLauncher`.
 *
 * Nothing of CUDA is included or linked: who makes a launcher passes the addresses of the driver's
 * functions. Which arrays a kernel accepts, and every error text, are Python's; what is not of the
 * plain kind makes a launcher return False, and the general way looks at it.
 *
 * `_native_py_cuda.py` is the same in Python; tests/null/test_native_cuda.py holds both to one
 * behaviour.
 */
#include "_native_cuda.h"

#include <math.h>
#include <stdalign.h>
#include <string.h>

#define MAX_SLOTS 64
#define MAX_PARAMETERS 128
#define MAX_RECORD 4096 /* bytes; what every device and driver takes */

/* ---- the launcher -------------------------------------------------------------------------- */

struct config { /* CUlaunchConfig */
    unsigned grid[3], block[3], shared;
    void *stream;
    const void *attributes;
    unsigned n_attributes;
};
#define ATTRIBUTE_BYTES 72 /* of a CUlaunchAttribute */

typedef struct {
    PyObject_HEAD
    vectorcall fast;
    int (*launch)(const struct config *, void *, void **, void **);
    int (*get_current)(void **);
    int (*set_current)(void *);
    int (*is_capturing)(void *, int *);
    void *function, *context;
    struct config config;
    Py_buffer record, attributes;
    int offsets[MAX_PARAMETERS], n_parameters;
    Slot *slots;
    int n, n_outputs, device, count_at, captures, takes_stream;
    enum mode mode;
    int64_t tile, most;
    PyObject *name, *note, *failed;
    PyObject *scratch; /* (stream) -> bytes of the record at `scratch_at`, kept for one stream */
    int scratch_at;
    uint64_t scratch_stream;
    PyObject *scratch_bytes;
} CudaLauncher;

static int write_integer(const Slot *slot, PyObject *object, char *record) {
    if (!PyLong_CheckExact(object)) return 0;
    int overflow;
    int64_t value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow > 0 && slot->size == 8 && slot->high == INT64_MAX) { /* as unsigned */
        uint64_t large = PyLong_AsUnsignedLongLong(object);
        if (PyErr_Occurred()) {
            PyErr_Clear();
            return 0;
        }
        memcpy(record + slot->at, &large, 8);
        return 1;
    }
    if (overflow || value < slot->low || value > slot->high) return 0;
    memcpy(record + slot->at, &value, (size_t)slot->size); /* little-endian, as the device is */
    return 1;
}

static int write_float(const Slot *slot, PyObject *object, char *record) {
    if (!PyFloat_CheckExact(object)) return 0;
    double value = PyFloat_AsDouble(object);
    float narrow = (float)value;
    if (slot->size == 8)
        memcpy(record + slot->at, &value, 8);
    else if (isinf(narrow) && !isinf(value))
        return 0;
    else
        memcpy(record + slot->at, &narrow, 4);
    return 1;
}

/* None for a null pointer; a bool. */
static int write_constant(const Slot *slot, PyObject *object, char *record) {
    if (slot->kind == 'z' ? object != Py_None : !PyBool_Check(object)) return 0;
    memset(record + slot->at, 0, (size_t)slot->size);
    record[slot->at] = object == Py_True; /* little-endian, as the device is */
    return 1;
}

static int write_buffer(const Slot *slot, PyObject *object, char *record) {
    Py_buffer view;
    if ((PyObject *)Py_TYPE(object) != slot->type) return 0;
    if (PyObject_GetBuffer(object, &view, PyBUF_SIMPLE)) {
        PyErr_Clear();
        return 0;
    }
    int fits = view.len == slot->size;
    if (fits) memcpy(record + slot->at, view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return fits;
}

static void write_array(const Slot *slot, const struct seen *s, char *record) {
    const size_t bytes = (size_t)s->rank * sizeof(int64_t);
    memcpy(record + slot->at, &s->data, sizeof s->data);
    if (slot->shape_at >= 0) memcpy(record + slot->shape_at, s->shape, bytes);
    if (slot->strides_at >= 0) memcpy(record + slot->strides_at, s->strides, bytes);
}

/* Whether an output shares bytes with another array, other than element for element. */
static int clashes(const CudaLauncher *self, const Slot *const *slots, const struct seen *s,
                   int n) {
    for (int out = n - self->n_outputs; out < n; out++) {
        for (int k = 0; k < out; k++) {
            int apart = s[k].data + s[k].high <= s[out].data + s[out].low ||
                        s[out].data + s[out].high <= s[k].data + s[k].low;
            int same = k < n - self->n_outputs && s[k].data == s[out].data &&
                       s[k].rank == s[out].rank && slots[k]->size == slots[out]->size;
            for (int d = 0; same && d < s[k].rank; d++)
                same = s[k].shape[d] == s[out].shape[d] &&
                       (s[k].strides[d] == s[out].strides[d] || s[k].shape[d] == 1);
            if (!apart && !same) return 1;
        }
    }
    return 0;
}

/* Write what belongs to the stream. A capture has memory of its own, by the general way; so has each
   thread on its own default stream, whose handle is 2 in all of them. */
static int write_scratch(CudaLauncher *self, uint64_t stream, char *record) {
    int capturing = 0;
    char *bytes;
    Py_ssize_t size;
    if (stream == 2) return 0;
    if (self->is_capturing((void *)(uintptr_t)stream, &capturing) || capturing) return 0;
    if (!self->scratch_bytes || self->scratch_stream != stream) {
        PyObject *made = PyObject_CallFunction(self->scratch, "K", (unsigned long long)stream);
        if (!made) return -1;
        Py_XDECREF(self->scratch_bytes);
        self->scratch_bytes = made;
        self->scratch_stream = stream;
    }
    if (PyBytes_AsStringAndSize(self->scratch_bytes, &bytes, &size)) return -1;
    if (self->scratch_at + size > self->record.len) return 0;
    memcpy(record + self->scratch_at, bytes, (size_t)size);
    return 1;
}

static PyObject *run(CudaLauncher *self, struct config *config, char *record) {
    void *parameters[MAX_PARAMETERS], *before = NULL;
    int status;
    for (int i = 0; i < self->n_parameters; i++) parameters[i] = record + self->offsets[i];
    if (self->note != Py_None) {
        PyObject *noted = PyObject_CallFunctionObjArgs(self->note, self->name, NULL);
        if (!noted) return NULL;
        Py_DECREF(noted);
    }
    int elsewhere = self->context && !self->get_current(&before) && before != self->context;
    Py_BEGIN_ALLOW_THREADS /* the queue may be full, and what empties it may need the GIL */
    status = elsewhere ? self->set_current(self->context) : 0;
    if (!status) status = self->launch(config, self->function, parameters, NULL);
    if (elsewhere && before) self->set_current(before);
    Py_END_ALLOW_THREADS
    if (!status) Py_RETURN_TRUE;
    PyObject *error = PyObject_CallFunction(self->failed, "i", status);
    if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    return NULL;
}

/* launcher([stream,] operands..., [captured scalars]) */
static PyObject *launch(PyObject *object, PyObject *const *args, size_t nargsf,
                        PyObject *keywords) {
    CudaLauncher *self = (CudaLauncher *)object;
    struct seen seen[MAX_SLOTS];
    const Slot *arrays[MAX_SLOTS];
    alignas(64) char record[MAX_RECORD];
    struct config config = self->config;
    uint64_t stream = 0;
    size_t n_args = ARGUMENT_COUNT(nargsf), n = (size_t)self->n;
    int n_arrays = 0;
    if (keywords) Py_RETURN_FALSE;
    if (self->takes_stream) {
        if (!n_args || !PyLong_CheckExact(args[0])) Py_RETURN_FALSE;
        stream = PyLong_AsUnsignedLongLongMask(args[0]);
        args++, n_args--;
    }
    if (n_args != n && !(n_args == n + 1 && PyBytes_Check(args[n]))) Py_RETURN_FALSE;
    memcpy(record, self->record.buf, (size_t)self->record.len);
    if (n_args > n || self->captures) {
        char *given;
        Py_ssize_t size = -1;
        if (n_args > n) PyBytes_AsStringAndSize(args[n], &given, &size);
        if (size != self->captures) Py_RETURN_FALSE;
        memcpy(record, given, (size_t)size);
    }
    for (size_t i = 0; i < n; i++) {
        Slot *slot = &self->slots[i];
        int fits;
        if (slot->kind == 'a') {
            struct seen *s = &seen[n_arrays];
            fits = km_see(slot, args[i], s, self->mode, self->device);
            if (fits && self->mode == ALIKE && n_arrays)
                fits = s->rank == seen[0].rank &&
                       !memcmp(s->shape, seen[0].shape, (size_t)s->rank * sizeof(int64_t));
            if (fits) write_array(slot, s, record);
            arrays[n_arrays++] = slot;
        } else {
            fits = slot->kind == 'i'   ? write_integer(slot, args[i], record)
                   : slot->kind == 'f' ? write_float(slot, args[i], record)
                   : slot->kind == 'n' ? write_buffer(slot, args[i], record)
                                       : write_constant(slot, args[i], record);
        }
        if (!fits) Py_RETURN_FALSE;
    }
    if (self->mode != ANY && (!seen[0].count || clashes(self, arrays, seen, n_arrays)))
        Py_RETURN_FALSE;
    if (!km_ordered(seen, n_arrays, self->device, self->takes_stream, &stream)) Py_RETURN_FALSE;
    if (self->tile) {
        int64_t blocks = (seen[0].count + self->tile - 1) / self->tile;
        config.grid[0] = (unsigned)(blocks < self->most ? blocks : self->most);
        if (self->count_at >= 0) memcpy(record + self->count_at, &seen[0].count, sizeof(int64_t));
    }
    if (self->scratch) {
        int written = write_scratch(self, stream, record);
        if (written < 1) return written ? NULL : PyBool_FromLong(0);
    }
    config.stream = (void *)(uintptr_t)stream;
    return run(self, &config, record);
}

static PyObject *launcher_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *items[MAX_SLOTS + 2];
    Py_ssize_t n = PyTuple_Size(args);
    if (n > MAX_SLOTS + 2) Py_RETURN_FALSE;
    for (Py_ssize_t i = 0; i < n; i++) items[i] = PyTuple_GetItem(args, i);
    return launch(self, items, (size_t)n, kwargs && PyDict_Size(kwargs) ? kwargs : NULL);
}

static void launcher_dealloc(PyObject *object) {
    CudaLauncher *self = (CudaLauncher *)object;
    PyBuffer_Release(&self->record);
    PyBuffer_Release(&self->attributes);
    for (int i = 0; self->slots && i < self->n; i++) {
        Py_XDECREF(self->slots[i].type);
        Py_XDECREF(self->slots[i].numpy);
        Py_XDECREF(self->slots[i].plain);
    }
    PyMem_Free(self->slots);
    Py_XDECREF(self->name);
    Py_XDECREF(self->note);
    Py_XDECREF(self->failed);
    Py_XDECREF(self->scratch);
    Py_XDECREF(self->scratch_bytes);
    km_free_object(object);
}

/* ---- construction -------------------------------------------------------------------------- */

static int wrong(const char *what) {
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "CudaLauncher: %s", what);
    return -1;
}

static int inside(const CudaLauncher *self, int at, int64_t size) {
    return at >= 0 && size >= 0 && at + size <= self->record.len;
}

/* ("a", at, dtype, numpy, code, bits, itemsize, alignment, shape_at, strides_at, rank, fixed) */
static int read_array(const CudaLauncher *self, Slot *slot, PyObject *tuple) {
    const char *kind;
    PyObject *fixed, *shape, *strides;
    if (!PyArg_ParseTuple(tuple, "siOOiiiiiiiO", &kind, &slot->at, &slot->type, &slot->numpy,
                          &slot->code, &slot->bits, &slot->size, &slot->alignment, &slot->shape_at,
                          &slot->strides_at, &slot->rank, &fixed))
        return slot->type = slot->numpy = NULL, -1;
    Py_INCREF(slot->type);
    Py_INCREF(slot->numpy);
    const int64_t room = (int64_t)sizeof(int64_t) * slot->rank;
    if (!inside(self, slot->at, 8) || slot->alignment < 1 || slot->size < 0 ||
        slot->rank > MAX_RANK ||
        (slot->rank < 0 && (slot->shape_at >= 0 || slot->strides_at >= 0)) ||
        (slot->shape_at >= 0 && !inside(self, slot->shape_at, room)) ||
        (slot->strides_at >= 0 && !inside(self, slot->strides_at, room)))
        return wrong("an array lies outside the record");
    if (self->mode != FIXED) return 0;
    int rank;
    if (!PyArg_ParseTuple(fixed, "OO", &shape, &strides) ||
        !km_read_ints(shape, slot->shape, slot->shape + MAX_RANK, &slot->rank) ||
        !km_read_ints(strides, slot->strides, slot->strides + MAX_RANK, &rank))
        return -1;
    if (rank != slot->rank) return wrong("shape and strides of an array do not fit");
    slot->high = slot->size;
    for (int d = 0; d < rank; d++) {
        int64_t reach = (slot->shape[d] - 1) * slot->strides[d];
        *(reach < 0 ? &slot->low : &slot->high) += reach;
    }
    return 0;
}

static int read_slot(const CudaLauncher *self, Slot *slot, PyObject *tuple) {
    int holds = PyTuple_Check(tuple) && PyTuple_Size(tuple);
    PyObject *first = holds ? PyTuple_GetItem(tuple, 0) : NULL;
    const char *kind = first ? PyUnicode_AsUTF8AndSize(first, NULL) : NULL;
    int read = 0;
    if (!kind) return wrong("a slot is no tuple that begins with its kind");
    slot->kind = *kind;
    if (*kind == 'a') return read_array(self, slot, tuple);
    if (*kind == 'i')
        read = PyArg_ParseTuple(tuple, "siiLL", &kind, &slot->at, &slot->size, &slot->low,
                                &slot->high);
    else if (*kind && strchr("fbz", *kind))
        read = PyArg_ParseTuple(tuple, "sii", &kind, &slot->at, &slot->size);
    else if (*kind == 'n')
        read = PyArg_ParseTuple(tuple, "siiO", &kind, &slot->at, &slot->size, &slot->type);
    if (!read) return slot->type = NULL, wrong("a slot is of no kind");
    Py_XINCREF(slot->type);
    if (!inside(self, slot->at, slot->size) || slot->size < 1 ||
        (*kind == 'i' && slot->size > 8) ||
        (*kind == 'f' && slot->size != 4 && slot->size != 8))
        return wrong("a scalar lies outside the record");
    return 0;
}

static int read_triple(PyObject *tuple, unsigned *to) {
    return PyArg_ParseTuple(tuple, "III", &to[0], &to[1], &to[2]) ? 0 : -1;
}

static int fill_launcher(CudaLauncher *self, PyObject *args, PyObject *kwargs) {
    static char *keywords[] = {
        "driver",   "function", "record",       "parameters", "slots", "grid", "block",
        "shared",   "device",   "context",      "outputs",    "mode",  "tile", "most",
        "count_at", "captures", "takes_stream", "attributes", "name",  "note", "failed",
        "scratch",  NULL};
    unsigned long long function, context = 0, driver[4];
    PyObject *addresses, *record, *parameters, *slots, *grid = NULL, *block = NULL;
    PyObject *attributes = Py_None, *scratch = Py_None;
    int64_t offsets[MAX_PARAMETERS];
    int mode = ANY;
    self->count_at = -1;
    self->most = INT32_MAX;
    self->name = self->note = self->failed = Py_None;
    int read = PyArg_ParseTupleAndKeywords(
        args, kwargs, "O!KOO!O!|$OOIiKiiLLiipOOOOO:CudaLauncher", keywords, &PyTuple_Type,
        &addresses, &function, &record, &PyTuple_Type, &parameters, &PyTuple_Type, &slots, &grid,
        &block, &self->config.shared, &self->device, &context, &self->n_outputs, &mode, &self->tile,
        &self->most, &self->count_at, &self->captures, &self->takes_stream, &attributes,
        &self->name, &self->note, &self->failed, &scratch);
    Py_INCREF(self->name);
    Py_INCREF(self->note);
    Py_INCREF(self->failed);
    if (!read ||
        !PyArg_ParseTuple(addresses, "KKKK", &driver[0], &driver[1], &driver[2], &driver[3]) ||
        (scratch != Py_None &&
         !PyArg_ParseTuple(scratch, "iO", &self->scratch_at, &self->scratch)))
        return -1;
    Py_XINCREF(self->scratch);
    self->launch = (int (*)(const struct config *, void *, void **, void **))(uintptr_t)driver[0];
    self->get_current = (int (*)(void **))(uintptr_t)driver[1];
    self->set_current = (int (*)(void *))(uintptr_t)driver[2];
    self->is_capturing = (int (*)(void *, int *))(uintptr_t)driver[3];
    self->function = (void *)(uintptr_t)function;
    self->context = (void *)(uintptr_t)context;
    self->mode = (enum mode)mode;
    for (int i = 0; i < 3; i++) self->config.grid[i] = self->config.block[i] = 1;
    if ((grid && read_triple(grid, self->config.grid)) ||
        (block && read_triple(block, self->config.block)) ||
        PyObject_GetBuffer(record, &self->record, PyBUF_SIMPLE) ||
        (attributes != Py_None &&
         PyObject_GetBuffer(attributes, &self->attributes, PyBUF_SIMPLE)) ||
        !km_read_ints(parameters, offsets, offsets + MAX_PARAMETERS, &self->n_parameters))
        return -1;
    self->config.attributes = self->attributes.buf;
    self->config.n_attributes = (unsigned)(self->attributes.len / ATTRIBUTE_BYTES);
    for (int i = 0; i < self->n_parameters; i++) {
        self->offsets[i] = (int)offsets[i];
        if (!inside(self, self->offsets[i], 1)) return wrong("a parameter lies outside the record");
    }
    Py_ssize_t n = PyTuple_Size(slots);
    if (!self->launch || !self->function || self->record.len > MAX_RECORD || n > MAX_SLOTS ||
        mode < ANY || mode > FIXED || self->tile < 0 || self->most < 1 || self->captures < 0 ||
        (context && !(self->get_current && self->set_current)) ||
        (self->scratch && (!self->is_capturing || self->scratch_at < 0)) ||
        !inside(self, 0, self->captures) ||
        (self->count_at >= 0 && !inside(self, self->count_at, 8)))
        return wrong("an argument is out of range");
    self->slots = PyMem_Calloc((size_t)n + 1, sizeof(Slot));
    if (!self->slots) return PyErr_NoMemory(), -1;
    int n_arrays = 0;
    for (self->n = 0; self->n < n;) {
        Slot *slot = &self->slots[self->n++];
        if (read_slot(self, slot, PyTuple_GetItem(slots, self->n - 1))) return -1;
        n_arrays += slot->kind == 'a';
    }
    if (self->n_outputs < 0 || self->n_outputs > n_arrays || (!n_arrays && mode != ANY) ||
        (self->tile && mode == ANY) || (!n_arrays && !self->takes_stream))
        return wrong("an argument is out of range");
    return 0;
}

static PyObject *launcher_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    CudaLauncher *self = (CudaLauncher *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self) return NULL;
    self->fast = launch;
    if (fill_launcher(self, args, kwargs) == 0) return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static PyMemberDef launcher_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CudaLauncher, fast), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot launcher_slots[] = {
    {Py_tp_doc, "CudaLauncher(driver, function, record, ...): a kernel, called with arrays."},
    {Py_tp_new, launcher_new},
    {Py_tp_dealloc, launcher_dealloc},
    {Py_tp_call, launcher_call},
    {Py_tp_members, launcher_members},
    {0, NULL},
};
PyType_Spec km_cuda_launcher_spec = {"kernelmill._native.CudaLauncher", sizeof(CudaLauncher), 0,
                                     Py_TPFLAGS_DEFAULT | HAVE_VECTORCALL, launcher_slots};
