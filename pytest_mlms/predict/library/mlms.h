/* libmlms: the model of a manifest, for programs in C, C++ and Java. docs/library.md of pytest-mlms explains it. */
#ifndef MLMS_H
#define MLMS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A model that is open; 0 is none. */
typedef int64_t mlms_model;

/* An array, or as an input also a text or a file. */
typedef struct {
    const char *name;     /* of the input or output; NULL for the only input of a model */
    const char *type;     /* of the elements, such as "float32" or "uint8"; or "text", "path", "bytes" */
    size_t rank;          /* the number of axes; there is none for the batch */
    const int64_t *shape; /* their lengths */
    const void *data;     /* the elements, the last axis fastest; of "text" and "path" a string in UTF-8 */
} mlms_value;

/* An answer, which stays as it is until mlms_free. */
typedef struct {
    const char *json; /* as `mlms predict --json` prints it, without the time */
    size_t count;     /* of the arrays */
    const mlms_value *arrays;
} mlms_prediction;

/* Return a model, or 0. Stack and device may be NULL: then they are those of the manifest. */
mlms_model mlms_open(const char *manifest, const char *stack, const char *device);

/* Return the answer to one input, or NULL. The inputs are copied. */
const mlms_prediction *mlms_predict(mlms_model model, const mlms_value *inputs, size_t count);

/* Release an answer, and end a model. Return 0, or -1. Both take 0 and NULL, and do nothing. */
int mlms_free(const mlms_prediction *prediction);
int mlms_close(mlms_model model);

/* Return why this thread's last call that failed did so, "" without one: a text of this thread until another one fails. */
const char *mlms_error(void);

/* Return the version of pytest-mlms that made the library. */
const char *mlms_version(void);

#ifdef __cplusplus
}
#endif
#endif
