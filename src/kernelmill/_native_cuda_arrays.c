/* Arrays in device memory as the CUDA launcher sees them, and the streams of their libraries.
 *
 * Libraries are known by the type object alone, so that nothing is imported and no subclass is
 * mistaken. What is not plain is not seen: the general way, in Python, looks at it.
 */
#include "_native_cuda.h"

#include <string.h>

#define MAX_LIBRARIES 16
#define DL_CUDA 2
#define DL_COMPLEX 5
#define DL_OPAQUE 255 /* ours, for structs: compared as objects */

/* ---- libraries of arrays ----------------------------------------------------------------- */

struct dl_exchange { /* DLPackExchangeAPI, version 1.3 */
    uint32_t major, minor;
    struct dl_exchange *previous;
    void *allocate, *to_managed, *from_managed;
    int (*to_tensor)(void *object, struct dl_tensor *out);
    int (*current_stream)(int32_t device_type, int32_t device, void **out);
};

enum kind { EXCHANGE, TORCH, METHODS, CUPY, OWN, NONE };

struct library {
    PyObject *type;
    enum kind kind;
    const struct dl_exchange *api;
    PyObject *stream; /* CUPY, OWN, METHODS: (device) -> handle */
    PyObject *is_negative, *is_conjugate; /* TORCH, METHODS: methods of the type */
    /* METHODS, for torch before 2.10: element type -> 256 * DLPack's code + bits; methods. */
    PyObject *codes, *data_ptr, *stride, *get_device;
    /* TORCH, METHODS: the property of the type, and what reads it; NULL where it is no such. */
    PyObject *requires_grad;
    descrgetfunc read_grad;
};
static struct library libraries[MAX_LIBRARIES];
static int n_libraries;

/* What `_record` of an array of our own holds; its extents follow. */
struct own_record {
    uint64_t data, stream;
    int32_t device, code, bits, ndim;
};

static struct {
    PyObject *requires_grad, *data, *ptr, *device_id, *dtype, *shape, *strides, *record;
} names;

static int intern_names(void) {
    if (names.record) return 0;
    names.requires_grad = PyUnicode_InternFromString("requires_grad");
    names.data = PyUnicode_InternFromString("data");
    names.ptr = PyUnicode_InternFromString("ptr");
    names.device_id = PyUnicode_InternFromString("device_id");
    names.dtype = PyUnicode_InternFromString("dtype");
    names.shape = PyUnicode_InternFromString("shape");
    names.strides = PyUnicode_InternFromString("strides");
    names.record = PyUnicode_InternFromString("_record");
    return PyErr_Occurred() ? -1 : 0;
}

/* cuda_library(type, kind, *, api=0, stream=None, is_negative=None, is_conjugate=None); the kind
 * "none" forgets the type. */
PyObject *km_cuda_library(PyObject *module, PyObject *args, PyObject *kwargs) {
    static char *keywords[] = {"type",         "kind",  "api",     "stream", "is_negative",
                               "is_conjugate", "codes", "methods", NULL};
    static const char *const kinds[] = {"exchange", "torch", "methods", "cupy", "own", "none"};
    struct library made = {0};
    const char *kind;
    unsigned long long api = 0;
    PyObject *methods = NULL;
    (void)module;
    if (intern_names() ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "Os|$KOOOO!O!:cuda_library", keywords,
                                     &made.type, &kind, &api, &made.stream, &made.is_negative,
                                     &made.is_conjugate, &PyDict_Type, &made.codes, &PyTuple_Type,
                                     &methods) ||
        (methods && !PyArg_ParseTuple(methods, "OOO", &made.data_ptr, &made.stride,
                                      &made.get_device)))
        return NULL;
    int found = 0, at = 0;
    while (found <= NONE && strcmp(kind, kinds[found])) found++;
    made.kind = (enum kind)found;
    for (made.api = (const struct dl_exchange *)(uintptr_t)api; made.api && made.api->major != 1;)
        made.api = made.api->previous;
    while (at < n_libraries && libraries[at].type != made.type) at++;
    if (found == NONE && at < n_libraries) libraries[at] = libraries[--n_libraries];
    if (found == NONE) Py_RETURN_NONE;
    int exchanges = made.kind == EXCHANGE || made.kind == TORCH;
    int lazy = made.kind == TORCH || made.kind == METHODS;
    if (found > NONE || !PyType_Check(made.type) ||
        (exchanges && !(made.api && made.api->to_tensor)) || (!exchanges && !made.stream) ||
        (lazy && !(made.is_negative && made.is_conjugate)) ||
        (made.kind == METHODS && !(made.codes && made.get_device))) {
        PyErr_SetString(PyExc_ValueError, "cuda_library(): the arguments do not fit each other");
        return NULL;
    }
    if (at == MAX_LIBRARIES) {
        PyErr_Format(PyExc_ValueError, "cuda_library(): more than %d types", MAX_LIBRARIES);
        return NULL;
    }
    made.requires_grad = lazy ? PyObject_GetAttr(made.type, names.requires_grad) : NULL;
    if (made.requires_grad && Py_TYPE(made.requires_grad) == &PyGetSetDescr_Type)
        made.read_grad = (descrgetfunc)PyType_GetSlot(&PyGetSetDescr_Type, Py_tp_descr_get);
    PyErr_Clear();
    PyObject *all[] = {made.type,  made.stream,   made.is_negative, made.is_conjugate,
                       made.codes, made.data_ptr, made.stride,      made.get_device};
    for (int i = 0; i < 8; i++) Py_XINCREF(all[i]); /* for good, as the table is */
    libraries[at] = made;
    n_libraries += at == n_libraries;
    Py_RETURN_NONE;
}

static const struct library *library_of(PyObject *object) {
    const PyObject *type = (const PyObject *)Py_TYPE(object);
    for (int i = 0; i < n_libraries; i++)
        if (libraries[i].type == type) return &libraries[i];
    return NULL;
}

/* ---- one array ---------------------------------------------------------------------------- */

static int is_true(PyObject *object) { /* a new reference, or NULL */
    int answer = object ? object == Py_True : -1;
    Py_XDECREF(object);
    if (answer < 0) PyErr_Clear();
    return answer;
}

static int int_of(PyObject *object, PyObject *name, uint64_t *to) {
    PyObject *value = PyObject_GetAttr(object, name);
    *to = value ? (uint64_t)PyLong_AsUnsignedLongLongMask(value) : 0;
    Py_XDECREF(value);
    if (!PyErr_Occurred()) return 1;
    PyErr_Clear();
    return 0;
}

static int same_object(PyObject *object, PyObject *name, PyObject *wanted) {
    PyObject *value = PyObject_GetAttr(object, name);
    int same = value == wanted ? 1 : value ? PyObject_RichCompareBool(value, wanted, Py_EQ) : -1;
    Py_XDECREF(value);
    if (same < 0) PyErr_Clear();
    return same > 0;
}

/* Strides of C order where `steps` is NULL, else these times `unit`. */
static void set_layout(struct seen *s, int64_t itemsize, const int64_t *shape, const int64_t *steps,
                       int64_t unit) {
    int64_t step = itemsize;
    for (int d = s->rank - 1; d >= 0; d--) {
        s->shape[d] = shape[d];
        s->strides[d] = steps ? steps[d] * unit : step;
        step *= shape[d];
    }
}

/* Whether a tensor wants a gradient; without a look-up by name where there is a property. */
static int wants_grad(const struct library *library, PyObject *object) {
    if (library->read_grad)
        return is_true(library->read_grad(library->requires_grad, object, library->type));
    return is_true(PyObject_GetAttr(object, names.requires_grad));
}

/* Whether a tensor of torch is neither a lazy negative nor a lazy conjugate. Asking takes longer
 * than all the rest and the answer does not change, so it is kept for a tensor that comes again. */
static int is_plain(Slot *slot, const struct library *library, PyObject *object, int code) {
    if (slot->plain && PyWeakref_GetObject(slot->plain) == object) return 1;
    if (is_true(PyObject_CallFunctionObjArgs(library->is_negative, object, NULL)) ||
        (code == DL_COMPLEX &&
         is_true(PyObject_CallFunctionObjArgs(library->is_conjugate, object, NULL))))
        return 0;
    if (slot->last == object) {
        Py_XDECREF(slot->plain);
        slot->plain = PyWeakref_NewRef(object, NULL);
        if (!slot->plain) PyErr_Clear();
    }
    slot->last = object;
    return 1;
}

static int see_exchanged(Slot *slot, PyObject *object, struct seen *s) {
    struct dl_tensor t;
    int is_torch = s->library->kind == TORCH;
    if (is_torch && wants_grad(s->library, object)) return 0;
    if (s->library->api->to_tensor(object, &t)) {
        PyErr_Clear();
        return 0;
    }
    if (t.device_type != DL_CUDA || t.lanes != 1 || t.ndim > MAX_RANK ||
        (slot->type != Py_None && (t.code != slot->code || t.bits != slot->bits)) ||
        (is_torch && !is_plain(slot, s->library, object, t.code)))
        return 0;
    s->data = t.data + t.byte_offset;
    s->device = t.device_id;
    s->rank = t.ndim;
    set_layout(s, t.bits / 8, t.shape, t.strides, t.bits / 8);
    return 1;
}

static int read_numbers(PyObject *object, PyObject *name, int64_t *to, int *count) {
    PyObject *tuple = PyObject_GetAttr(object, name);
    int read = tuple && km_read_ints(tuple, to, to + MAX_RANK, count);
    Py_XDECREF(tuple);
    if (!read) PyErr_Clear();
    return read;
}

/* The integer that a method returns. */
static int call_int(PyObject *method, PyObject *object, int64_t *to) {
    PyObject *value = PyObject_CallFunctionObjArgs(method, object, NULL);
    *to = value ? (int64_t)PyLong_AsUnsignedLongLongMask(value) : 0;
    Py_XDECREF(value);
    if (!PyErr_Occurred()) return 1;
    PyErr_Clear();
    return 0;
}

static int see_by_methods(Slot *slot, PyObject *object, struct seen *s) {
    const struct library *library = s->library;
    int64_t pointer, device, code, shape[MAX_RANK], steps[MAX_RANK];
    int n = 0;
    if (wants_grad(library, object) ||
        !call_int(library->get_device, object, &device) || device < 0 ||
        !call_int(library->data_ptr, object, &pointer))
        return 0;
    PyObject *dtype = PyObject_GetAttr(object, names.dtype);
    PyObject *known = dtype ? PyDict_GetItemWithError(library->codes, dtype) : NULL;
    code = known ? PyLong_AsLongLong(known) : 0;
    Py_XDECREF(dtype);
    PyObject *strides = PyObject_CallFunctionObjArgs(library->stride, object, NULL);
    int read = code && strides && read_numbers(object, names.shape, shape, &s->rank) &&
               km_read_ints(strides, steps, steps + MAX_RANK, &n) && n == s->rank;
    Py_XDECREF(strides);
    if (!read) PyErr_Clear();
    if (!read || (slot->type != Py_None && code != 256 * slot->code + slot->bits) ||
        !is_plain(slot, library, object, (int)(code / 256)))
        return 0;
    s->data = (char *)(uintptr_t)pointer;
    s->device = (int)device;
    set_layout(s, code % 256 / 8, shape, steps, code % 256 / 8);
    return 1;
}

static int see_cupy(const Slot *slot, PyObject *object, struct seen *s, enum mode mode) {
    uint64_t pointer, device;
    PyObject *memory = PyObject_GetAttr(object, names.data);
    int read = memory && int_of(memory, names.ptr, &pointer) &&
               int_of(memory, names.device_id, &device);
    Py_XDECREF(memory);
    if (!read) {
        PyErr_Clear();
        return 0;
    }
    s->data = (char *)(uintptr_t)pointer;
    s->device = (int)device;
    if (slot->type != Py_None && !same_object(object, names.dtype, slot->numpy)) return 0;
    s->rank = -1;
    if (mode == ANY && slot->rank < 0) return 1;
    int steps;
    return read_numbers(object, names.shape, s->shape, &s->rank) &&
           read_numbers(object, names.strides, s->strides, &steps) && steps == s->rank;
}

static int see_own(const Slot *slot, PyObject *object, struct seen *s) {
    struct own_record r;
    char *bytes;
    Py_ssize_t size;
    PyObject *record = PyObject_GetAttr(object, names.record);
    int read = 0;
    if (record && PyBytes_Check(record) && !PyBytes_AsStringAndSize(record, &bytes, &size) &&
        size >= (Py_ssize_t)sizeof r) {
        memcpy(&r, bytes, sizeof r);
        read = r.ndim >= 0 && r.ndim <= MAX_RANK &&
               size == (Py_ssize_t)(sizeof r + (size_t)r.ndim * sizeof(int64_t));
    }
    if (read) {
        int64_t shape[MAX_RANK];
        memcpy(shape, bytes + sizeof r, (size_t)r.ndim * sizeof(int64_t));
        s->data = (char *)(uintptr_t)r.data;
        s->stream = r.stream;
        s->device = r.device;
        s->rank = r.ndim;
        set_layout(s, r.bits / 8, shape, NULL, 0);
    }
    Py_XDECREF(record);
    if (!read) PyErr_Clear();
    if (!read || slot->type == Py_None) return read;
    if (r.code == DL_OPAQUE) return same_object(object, names.dtype, slot->type);
    return r.code == slot->code && r.bits == slot->bits;
}

int km_see(Slot *slot, PyObject *object, struct seen *s, enum mode mode, int device) {
    s->library = library_of(object);
    if (!s->library) return 0;
    enum kind kind = s->library->kind;
    int fits = kind == CUPY      ? see_cupy(slot, object, s, mode)
               : kind == OWN     ? see_own(slot, object, s)
               : kind == METHODS ? see_by_methods(slot, object, s)
                                 : see_exchanged(slot, object, s);
    if (!fits || s->device != device || (slot->rank >= 0 && s->rank != slot->rank) ||
        (uintptr_t)s->data % (size_t)slot->alignment)
        return 0;
    if (mode == ANY) return 1;
    int64_t step = slot->size, count = 1;
    for (int d = s->rank - 1; d >= 0; d--) {
        if (mode == FIXED && s->shape[d] != slot->shape[d]) return 0;
        int64_t wanted = mode == FIXED ? slot->strides[d] : step;
        if (s->shape[d] != 1 && s->strides[d] != wanted) return 0;
        step *= s->shape[d];
        count *= s->shape[d];
    }
    s->count = count;
    s->low = mode == FIXED ? slot->low : 0;
    s->high = mode == FIXED ? slot->high : step;
    return 1;
}

/* ---- streams ----------------------------------------------------------------------------- */

/* The stream on which the library of an array works at this moment. */
static int stream_of(const struct library *library, int device, uint64_t *stream) {
    void *handle = NULL;
    const struct dl_exchange *api = library->api;
    for (int i = 0; library->kind == OWN && i < n_libraries; i++)
        if (libraries[i].kind == TORCH) api = libraries[i].api;
    if (api && api->current_stream) {
        if (api->current_stream(DL_CUDA, device, &handle)) return 0;
        *stream = (uint64_t)(uintptr_t)handle;
        return 1;
    }
    if (!library->stream) return 0;
    PyObject *number = PyLong_FromLong(device);
    PyObject *answer = number ? PyObject_CallFunctionObjArgs(library->stream, number, NULL) : NULL;
    *stream = answer ? (uint64_t)PyLong_AsUnsignedLongLongMask(answer) : 0;
    Py_XDECREF(number);
    Py_XDECREF(answer);
    return !PyErr_Occurred();
}

int km_ordered(const struct seen *s, int n, int device, int given, uint64_t *stream) {
    const struct library *asked = NULL;
    uint64_t current = 0;
    for (int k = 0; k < n; k++) {
        const struct library *library = s[k].library;
        int chooses = k == 0 && !given;
        if (library->kind != OWN || chooses) {
            if (library != asked && !stream_of(library, device, &current)) {
                PyErr_Clear();
                return 0;
            }
            asked = library;
            if (chooses) *stream = current;
            if (current != *stream) return 0;
        }
        if (library->kind == OWN && s[k].stream != *stream) return 0;
    }
    return 1;
}
