/* A program that uses the library as tests ask: PROGRAM LIBRARY SCENARIO MANIFEST. It loads the library for itself alone, as
   plug-ins are loaded. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mlms.h"

#define FUNCTIONS(each) each(open) each(predict) each(free) each(close) each(error) each(version)
#define DECLARE(name) static __typeof__(mlms_##name) *name##_;
#define LOAD(name) name##_ = (__typeof__(mlms_##name) *)dlsym(library, "mlms_" #name);
FUNCTIONS(DECLARE)

static const char *manifest;
static unsigned char pixels[64];
static const int64_t SQUARE[] = {8, 8}, NEGATIVE[] = {-1, 8}, LARGE[] = {1LL << 40, 1LL << 40}, LINE[] = {64}, MANY[33];
static const mlms_value PICTURE = {NULL, "uint8", 2, SQUARE, pixels};
static volatile sig_atomic_t signals;

static void say(const char *name, int failed)
{
    printf("%s: %s\n", name, failed ? error_() : "no error");
    fflush(stdout);
}

static mlms_model opened(void)
{
    mlms_model model = open_(manifest, NULL, NULL);
    if (model == 0) {
        say("open", 1);
        exit(1);
    }
    return model;
}

static void answer(mlms_model model, const mlms_value *inputs, size_t count, const char *name)
{
    const mlms_prediction *found = predict_(model, inputs, count);
    say(name, found == NULL);
    free_(found);
}

static void refuse(void)
{
    const mlms_value wrong[] = {
        {"no type", NULL, 2, SQUARE, pixels},
        {"unknown type", "float31", 2, SQUARE, pixels},
        {"objects", "object", 2, SQUARE, pixels},
        {"no shape", "uint8", 2, NULL, pixels},
        {"negative", "uint8", 2, NEGATIVE, pixels},
        {"large", "uint8", 2, LARGE, pixels},
        {"many axes", "uint8", 33, MANY, pixels},
        {"no elements", "uint8", 2, SQUARE, NULL},
        {"wrong shape", "uint8", 1, LINE, pixels},
        {"a number", "float64", 0, NULL, pixels},
        {"no path", "path", 0, NULL, NULL},
        {"lost path", "path", 0, NULL, "nowhere.png"},
        {"strange path", "path", 0, NULL, "\xff.png"},
        {"strange text", "text", 0, NULL, "\xff"},
        {"words", "text", 0, NULL, "seven"},
        {"no picture", "bytes", 1, LINE, pixels},
    };
    const mlms_value twice[] = {{"image", "uint8", 2, SQUARE, pixels}, {"image", "uint8", 2, SQUARE, pixels}};
    const mlms_value unnamed[] = {PICTURE, PICTURE}, other = {"picture", "uint8", 2, SQUARE, pixels};
    mlms_model model = opened(), closed = opened();

    for (size_t index = 0; index < sizeof wrong / sizeof wrong[0]; index++) {
        mlms_value value = wrong[index];
        value.name = NULL;
        answer(model, &value, 1, wrong[index].name);
    }
    answer(model, twice, 2, "twice");
    answer(model, unnamed, 2, "unnamed");
    answer(model, &other, 1, "other name");
    answer(model, NULL, 1, "nothing");
    answer(model, &PICTURE, -1, "minus one");
    answer(model, NULL, 0, "none");
    say("NULL manifest", open_(NULL, NULL, NULL) == 0);
    say("lost manifest", open_("lost.yaml", NULL, NULL) == 0);
    say("lost stack", open_(manifest, "lost", NULL) == 0);
    say("lost device", open_(manifest, NULL, "cuda:77") == 0);
    say("close", close_(closed) != 0);
    say("close twice", close_(closed) != 0);
    answer(closed, &PICTURE, 1, "closed");
    answer(-7, &PICTURE, 1, "no model");
    say("close none", close_(0) != 0);
    say("free none", free_(NULL) != 0);
    say("free a stranger", free_((const mlms_prediction *)pixels) != 0);
    const mlms_prediction *found = predict_(model, &PICTURE, 1);
    say("free", free_(found) != 0);
    say("free twice", free_(found) != 0);
    found = predict_(model, &PICTURE, 1);
    say("close before free", close_(model) != 0);
    printf("still %zu arrays\n", found->count);
    say("free after close", free_(found) != 0);
}

static long resident(void)
{
    long total, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld %ld", &total, &pages) != 2)
        exit(1);
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static void many(int is_freed)
{
    mlms_model model = opened();
    for (int call = 0; call < 1200; call++) {
        const mlms_prediction *found = predict_(model, &PICTURE, 1);
        if (found == NULL)
            exit(1);
        if (is_freed)
            free_(found);
        predict_(model, NULL, 1);
        if (call >= 200 && call % 20 == 0)
            printf("%d %ld\n", call, resident());
    }
    close_(model);
}

static mlms_model shared[2];
static char expected[4096];

static void *work(void *number)
{
    int which = *(const int *)number;
    mlms_model own = which == 3 ? opened() : 0;
    const char *text = "as the others";
    for (int call = 0; call < 50; call++) {
        const mlms_prediction *found = predict_(own ? own : shared[which % 2], &PICTURE, 1);
        if (found == NULL || strcmp(found->json, expected) != 0)
            text = "differs";
        free_(found);
        if (which == 2 && (predict_(-2, &PICTURE, 1) != NULL || strstr(error_(), "model -2") == NULL))
            text = "the error is another one's";
    }
    if (which != 2 && error_()[0] != '\0')
        text = error_();
    close_(own);
    return (void *)text;
}

static void threads(void)
{
    static const int NUMBERS[] = {0, 1, 2, 3};
    pthread_t started[4];
    shared[0] = opened();
    shared[1] = opened();
    const mlms_prediction *first = predict_(shared[0], &PICTURE, 1);
    snprintf(expected, sizeof expected, "%s", first->json);
    for (int which = 0; which < 4; which++)
        pthread_create(&started[which], NULL, work, (void *)&NUMBERS[which]);
    for (int which = 0; which < 4; which++) {
        void *text;
        pthread_join(started[which], &text);
        puts(text);
    }
    say("freed by another thread", free_(first) != 0);
    say("close", close_(shared[0]) != 0 || close_(shared[1]) != 0);
}

static void *begin(void *unused)
{
    (void)unused;
    return (void *)(intptr_t)opened();
}

static void race(void) /* threads that begin at once, and one that closes while another works */
{
    pthread_t started[4];
    void *model;
    for (int which = 0; which < 4; which++)
        pthread_create(&started[which], NULL, begin, NULL);
    for (int which = 0; which < 4; which++) {
        pthread_join(started[which], &model);
        answer((mlms_model)(intptr_t)model, &PICTURE, 1, "began");
        say("close", close_((mlms_model)(intptr_t)model) != 0);
    }
}

static void count_signal(int number)
{
    (void)number;
    signals++;
}

static void interrupted(int is_handled)
{
    struct sigaction action = {.sa_handler = count_signal}, found;
    if (is_handled)
        sigaction(SIGINT, &action, NULL);
    mlms_model model = opened();
    puts("ready");
    fflush(stdout);
    while (!signals) {
        const mlms_prediction *answer = predict_(model, &PICTURE, 1);
        if (answer == NULL)
            say("predict", 1);
        free_(answer);
    }
    sigaction(SIGINT, NULL, &found);
    puts(found.sa_handler == count_signal ? "handled" : "another handler");
    close_(model);
}

static void forked(int comes_first)
{
    mlms_model model = comes_first ? 0 : opened();
    int status;
    pid_t child = fork();
    if (child == 0) {
        if (comes_first)
            model = opened();
        answer(model, &PICTURE, 1, "child");
        say("child closes", close_(model) != 0);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (comes_first)
        model = opened();
    answer(model, &PICTURE, 1, "parent");
    close_(model);
}

static void lost_agent(void)
{
    mlms_model model = opened();
    puts("ready");
    fflush(stdout);
    getchar();
    answer(model, &PICTURE, 1, "without its process");
    answer(model, &PICTURE, 1, "with a new one");
    close_(model);
}

int main(int count, char **words)
{
    void *library = count == 4 ? dlopen(words[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) {
        fprintf(stderr, "can't load it: %s\n", dlerror());
        return 2;
    }
    FUNCTIONS(LOAD)
    signal(SIGINT, SIG_DFL); /* background jobs of a shell ignore it */
    manifest = words[3];
    for (int index = 0; index < 64; index++)
        pixels[index] = index % 17;
    const char *scenario = words[2];
    if (!strcmp(scenario, "open"))
        say(version_(), open_(manifest, NULL, NULL) == 0);
    else if (!strcmp(scenario, "refuse"))
        refuse();
    else if (!strcmp(scenario, "many") || !strcmp(scenario, "kept"))
        many(scenario[0] == 'm');
    else if (!strcmp(scenario, "threads"))
        threads();
    else if (!strcmp(scenario, "race"))
        race();
    else if (!strcmp(scenario, "interrupted") || !strcmp(scenario, "handled"))
        interrupted(scenario[0] == 'h');
    else if (!strcmp(scenario, "forked") || !strcmp(scenario, "forked first"))
        forked(strcmp(scenario, "forked") != 0);
    else if (!strcmp(scenario, "lost agent"))
        lost_agent();
    dlclose(library);
    return 0;
}
