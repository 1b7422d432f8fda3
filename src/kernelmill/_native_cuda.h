/* What the two CUDA files of the extension share: slots of a launch, what is seen of an array. */
#ifndef KM_NATIVE_CUDA_H
#define KM_NATIVE_CUDA_H
#include "_native.h"

#define MAX_RANK 8

/* How shapes are looked at: not at all, all alike and C-contiguous, each as it is laid down. */
enum mode { ANY, ALIKE, FIXED };

typedef struct {
    char kind; /* 'a'rray, 'i'nteger, 'f'loat, 'b'ool, 'n'amed type with a buffer, 'z'ero: None */
    int at, size;
    int64_t low, high;        /* 'i': its limits; 'a', FIXED: the bytes around its pointer */
    PyObject *type;           /* 'n': the type; 'a': our element type, or None for any */
    PyObject *numpy;          /* 'a': NumPy's element type, or None */
    int code, bits, alignment, shape_at, strides_at, rank;
    int64_t shape[MAX_RANK], strides[MAX_RANK]; /* FIXED; strides in bytes */
    const void *last; /* 'a': the tensor seen last; an address only */
    PyObject *plain;  /* 'a': a weak reference to a tensor that is no lazy negative or conjugate */
} Slot;

struct seen {
    const struct library *library;
    char *data;
    uint64_t stream; /* of an array of our own */
    int64_t low, high, count;
    int device, rank;
    int64_t shape[MAX_RANK], strides[MAX_RANK]; /* strides in bytes */
};

/* Whether an array can be taken by a slot on a device; fills `s` with what it is. */
int km_see(Slot *slot, PyObject *object, struct seen *s, enum mode mode, int device);

/* Whether each array is ordered on the launch's stream: then nothing has to wait or to be held.
 * Unless the stream is given, it is the one on which the library of the first array works. */
int km_ordered(const struct seen *s, int n, int device, int given, uint64_t *stream);

#endif
