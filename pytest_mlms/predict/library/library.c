/* The functions of mlms.h above those that embedded.py has in Python. build.py defines MLMS_PYTHON, the interpreter of the
   environment, MLMS_USER_SITE and MLMS_VERSION.

   What is here works where Python doesn't: errors, the start of Python, and calls in a process that was forked. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "mlms.h"

#define PUBLIC __attribute__((visibility("default")))
#define MODULE "pytest_mlms.predict.library.embedded"
#define ADVICE "make the environment again, or run 'mlms library build' in another one"

static mlms_model python_open(const char *manifest, const char *stack, const char *device);
static const mlms_prediction *python_predict(mlms_model model, const mlms_value *inputs, size_t count);
static int python_free(const mlms_prediction *prediction);
static int python_close(mlms_model model);

static __thread char told[8192];
static char problem[2048]; /* of the start, "" without one */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pid_t owner; /* the process that has Python, 0 before the first call */

static void tell(const char *text)
{
    snprintf(told, sizeof told, "%s", text);
}

/* Start Python as the environment's interpreter would, without the program's variables, locale, arguments and signals. */
static PyStatus start_python(void)
{
    PyPreConfig first;
    PyConfig config;
    PyStatus status;

    PyPreConfig_InitIsolatedConfig(&first);
    first.utf8_mode = 1;
    status = Py_PreInitialize(&first);
    if (PyStatus_Exception(status))
        return status;
    PyConfig_InitIsolatedConfig(&config);
    config.user_site_directory = MLMS_USER_SITE;
    status = PyConfig_SetBytesString(&config, &config.program_name, MLMS_PYTHON);
    if (!PyStatus_Exception(status))
        status = Py_InitializeFromConfig(&config);
    PyConfig_Clear(&config);
    if (!PyStatus_Exception(status))
        Py_XDECREF(PyImport_ImportModule("_signal"));
    return status;
}

/* Start Python, and leave Ctrl-C to the program: Python takes it with the first import of its module for signals. */
static PyStatus start_quietly(void)
{
    struct sigaction action;
    sigset_t interrupt, former;
    PyStatus status;

    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, &former);
    sigaction(SIGINT, NULL, &action);
    status = start_python();
    sigaction(SIGINT, &action, NULL);
    pthread_sigmask(SIG_SETMASK, &former, NULL);
    return status;
}

static void note_exception(void)
{
    PyObject *type, *value, *trace, *text;

    PyErr_Fetch(&type, &value, &trace);
    text = value ? PyObject_Str(value) : NULL;
    snprintf(problem, sizeof problem, "libmlms: %s can't import pytest_mlms: %s; " ADVICE, MLMS_PYTHON,
             text ? PyUnicode_AsUTF8(text) : "no reason is given");
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

static void start(void)
{
    Dl_info python;
    PyGILState_STATE state;
    PyObject *module;

    /* A program may have loaded us for itself alone; Python's own modules look for its functions among all. */
    if (dladdr((void *)Py_IsInitialized, &python))
        dlopen(python.dli_fname, RTLD_LAZY | RTLD_GLOBAL | RTLD_NOLOAD);
    if (!Py_IsInitialized()) {
        PyStatus status = start_quietly();
        if (PyStatus_Exception(status)) {
            snprintf(problem, sizeof problem, "libmlms: Python can't be started as %s: %s; " ADVICE, MLMS_PYTHON,
                     status.err_msg ? status.err_msg : "it ended");
            return;
        }
        PyEval_SaveThread();
    }
    state = PyGILState_Ensure();
    module = PyImport_ImportModule(MODULE);
    if (module == NULL)
        note_exception();
    Py_XDECREF(module);
    PyGILState_Release(state);
}

static int is_ready(void)
{
    pid_t found = 0, own = getpid();

    if (!__atomic_compare_exchange_n(&owner, &found, own, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) && found != own) {
        tell("libmlms: this process was forked from one that uses the library; use it there, or start a program by exec");
        return 0;
    }
    pthread_once(&once, start);
    if (problem[0] == '\0' && cffi_start_python() == 0)
        return 1;
    tell(problem[0] ? problem : "libmlms: its part in Python can't be started; " ADVICE);
    return 0;
}

PUBLIC mlms_model mlms_open(const char *manifest, const char *stack, const char *device)
{
    return is_ready() ? python_open(manifest, stack, device) : 0;
}

PUBLIC const mlms_prediction *mlms_predict(mlms_model model, const mlms_value *inputs, size_t count)
{
    return is_ready() ? python_predict(model, inputs, count) : NULL;
}

PUBLIC int mlms_free(const mlms_prediction *prediction)
{
    if (prediction == NULL)
        return 0;
    return is_ready() ? python_free(prediction) : -1;
}

PUBLIC int mlms_close(mlms_model model)
{
    if (model == 0)
        return 0;
    return is_ready() ? python_close(model) : -1;
}

PUBLIC const char *mlms_error(void)
{
    return told;
}

PUBLIC const char *mlms_version(void)
{
    return MLMS_VERSION;
}
