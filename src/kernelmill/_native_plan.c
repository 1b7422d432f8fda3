/* `Caller`: what a plan inherits, so that its common call takes no Python at all.
 *
 * plan(*inputs, out=array), or with a new output, goes straight to the launcher, with the captured
 * scalars read where there are any, unless somebody listens to events; every other call, and one
 * that the launcher leaves, is handed to the method `_general(inputs, out)`.
 * `_native_py.py` has the same in Python.
 */
#include "_native.h"

#include <string.h>

typedef struct {
    PyObject_HEAD
    vectorcall fast;
    PyObject *launcher;  /* a Launcher or CudaLauncher, None or NULL */
    PyObject *read;      /* (functions) -> captured scalars or None; None where there are none */
    PyObject *functions;
    PyObject *single; /* (inputs) -> a new output or None; None where there are several */
} Caller;

/* Both launchers begin so. */
typedef struct {
    PyObject_HEAD
    vectorcall fast;
} Launching;

#define MAX_INPUTS 64

static PyObject *events, *active, *general, *out_name; /* the dict of kernelmill.events; names */

static int launches(const Caller *self) { /* and nobody listens */
    return self->launcher && self->launcher != Py_None && events &&
           PyDict_GetItem(events, active) == Py_False;
}

static PyObject *tuple_of(PyObject *const *args, Py_ssize_t n) {
    PyObject *tuple = PyTuple_New(n);
    for (Py_ssize_t i = 0; tuple && i < n; i++) {
        Py_INCREF(args[i]);
        PyTuple_SetItem(tuple, i, args[i]);
    }
    return tuple;
}

static PyObject *call_general(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *out) {
    PyObject *inputs = tuple_of(args, n);
    PyObject *made = inputs ? PyObject_CallMethodObjArgs(self, general, inputs, out, NULL) : NULL;
    Py_XDECREF(inputs);
    return made;
}

/* Call the launcher, which is another's where the setting `native` is off. */
static PyObject *run(PyObject *launcher, PyObject *const *args, Py_ssize_t n) {
    PyTypeObject *type = Py_TYPE(launcher);
    if (type == km_launcher_type || type == km_cuda_launcher_type)
        return ((Launching *)launcher)->fast(launcher, args, (size_t)n, NULL);
    PyObject *tuple = tuple_of(args, n);
    PyObject *done = tuple ? PyObject_CallObject(launcher, tuple) : NULL;
    Py_XDECREF(tuple);
    return done;
}

/* Launch with the inputs and the output that follows them in `args`. */
static PyObject *launch(const Caller *self, PyObject *const *args, Py_ssize_t n) {
    if (!self->read || self->read == Py_None) return run(self->launcher, args, n + 1);
    PyObject *items[MAX_INPUTS + 2];
    if (n > MAX_INPUTS) Py_RETURN_FALSE;
    PyObject *captures = PyObject_CallFunctionObjArgs(self->read, self->functions, NULL);
    if (!captures || captures == Py_None) {
        Py_XDECREF(captures);
        return captures ? PyBool_FromLong(0) : NULL;
    }
    memcpy(items, args, ((size_t)n + 1) * sizeof *args);
    items[n + 1] = captures;
    PyObject *done = run(self->launcher, items, n + 2);
    Py_DECREF(captures);
    return done;
}

static PyObject *call_out(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *out) {
    const Caller *self = (const Caller *)object;
    if (!PyTuple_CheckExact(out) && launches(self)) {
        PyObject *done = launch(self, args, n);
        if (!done) return NULL;
        Py_DECREF(done);
        if (done == Py_True) {
            Py_INCREF(out);
            return out;
        }
    }
    return call_general(object, args, n, out);
}

/* The same with a new output. */
static PyObject *call_new(PyObject *object, PyObject *const *args, Py_ssize_t n) {
    const Caller *self = (const Caller *)object;
    PyObject *items[MAX_INPUTS + 1], *out = NULL, *done = NULL;
    if (n > MAX_INPUTS || !self->single || self->single == Py_None || !launches(self))
        return call_general(object, args, n, Py_None);
    PyObject *inputs = tuple_of(args, n);
    if (inputs) out = PyObject_CallFunctionObjArgs(self->single, inputs, NULL);
    if (out && out != Py_None) {
        memcpy(items, args, (size_t)n * sizeof *args);
        items[n] = out;
        done = launch(self, items, n);
    }
    Py_XDECREF(inputs);
    if (done == Py_True) {
        Py_DECREF(done);
        return out;
    }
    int failed = !out || (out != Py_None && !done);
    Py_XDECREF(out);
    Py_XDECREF(done);
    return failed ? NULL : call_general(object, args, n, Py_None);
}

static PyObject *call(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *out) {
    return out == Py_None ? call_new(self, args, n) : call_out(self, args, n, out);
}

static int is_out(PyObject *name) {
    return name == out_name || PyObject_RichCompareBool(name, out_name, Py_EQ) == 1;
}

static PyObject *caller_fast(PyObject *self, PyObject *const *args, size_t nargsf,
                             PyObject *names) {
    Py_ssize_t n = (Py_ssize_t)ARGUMENT_COUNT(nargsf), n_names = names ? PyTuple_Size(names) : 0;
    if (!n_names) return call(self, args, n, Py_None);
    if (n_names == 1 && is_out(PyTuple_GetItem(names, 0))) return call(self, args, n, args[n]);
    PyErr_SetString(PyExc_TypeError, "a plan takes its inputs, and out=");
    return NULL;
}

static PyObject *caller_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *items[MAX_INPUTS + 1];
    Py_ssize_t n = PyTuple_Size(args), n_names = kwargs ? PyDict_Size(kwargs) : 0;
    PyObject *out = n_names ? PyDict_GetItem(kwargs, out_name) : Py_None;
    if (!out || n_names > 1 || n > MAX_INPUTS) {
        PyErr_SetString(PyExc_TypeError, "a plan takes its inputs, and out=");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) items[i] = PyTuple_GetItem(args, i);
    items[n] = out;
    return call(self, items, n, out);
}

static PyObject *caller_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    Caller *self = (Caller *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    (void)args, (void)kwargs;
    if (self) self->fast = caller_fast;
    return (PyObject *)self;
}

static int caller_traverse(PyObject *object, visitproc visit, void *arg) {
    Caller *self = (Caller *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->launcher);
    Py_VISIT(self->read);
    Py_VISIT(self->functions);
    Py_VISIT(self->single);
    return 0;
}

static int caller_clear(PyObject *object) {
    Caller *self = (Caller *)object;
    Py_CLEAR(self->launcher);
    Py_CLEAR(self->read);
    Py_CLEAR(self->functions);
    Py_CLEAR(self->single);
    return 0;
}

static void caller_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    caller_clear(self);
    km_free_object(self);
}

/* Caller.watch(vars(kernelmill.events)): where it is said whether somebody listens. */
static PyObject *caller_watch(PyObject *type, PyObject *dict) {
    (void)type;
    if (!PyDict_Check(dict)) return PyErr_Format(PyExc_TypeError, "watch() takes a dict");
    Py_INCREF(dict);
    Py_XDECREF(events);
    events = dict;
    Py_RETURN_NONE;
}

static PyMemberDef caller_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Caller, fast), READONLY, NULL},
    {"_launcher", T_OBJECT, offsetof(Caller, launcher), 0, NULL},
    {"_read", T_OBJECT, offsetof(Caller, read), 0, NULL},
    {"functions", T_OBJECT, offsetof(Caller, functions), 0, NULL},
    {"_single", T_OBJECT, offsetof(Caller, single), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyMethodDef caller_methods[] = {
    {"watch", caller_watch, METH_O | METH_STATIC, "watch(vars(kernelmill.events))"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot caller_slots[] = {
    {Py_tp_doc, "Caller(): calls its launcher, or its method `_general(inputs, out)`."},
    {Py_tp_new, caller_new},
    {Py_tp_dealloc, caller_dealloc},
    {Py_tp_traverse, caller_traverse},
    {Py_tp_clear, caller_clear},
    {Py_tp_call, caller_call},
    {Py_tp_members, caller_members},
    {Py_tp_methods, caller_methods},
    {0, NULL},
};
static PyType_Spec caller_spec = {
    "kernelmill._native.Caller", sizeof(Caller), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | HAVE_VECTORCALL, caller_slots};

PyObject *km_caller_type(void) {
    active = PyUnicode_InternFromString("active");
    general = PyUnicode_InternFromString("_general");
    out_name = PyUnicode_InternFromString("out");
    return active && general && out_name ? PyType_FromSpec(&caller_spec) : NULL;
}
